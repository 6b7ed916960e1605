//! The runtime of the task that calls a store. It is remembered while the background runtime is entered for its timers.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::runtime::Handle;

/// True once [`current`] was called. Until then nothing is remembered, and calls cost nothing extra.
static IS_USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLER: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// The runtime of the calling task.
#[cfg(not(shuttle))]
pub fn current() -> Option<Handle> {
    // Written once only: all threads have it in their caches.
    if !IS_USED.load(Relaxed) {
        IS_USED.store(true, Relaxed);
    }
    CALLER.with_borrow(Clone::clone).or_else(|| Handle::try_current().ok())
}

/// Remembers the runtime of the calling task until the result is dropped. In nested calls the outermost one counts.
pub(crate) fn remember() -> Option<RememberedRuntime> {
    if !IS_USED.load(Relaxed) {
        return None;
    }
    CALLER.with_borrow_mut(|caller| {
        let is_first = caller.is_none();
        if is_first {
            *caller = Handle::try_current().ok();
        }
        // Not `then_some`: that would make one in every case, and its drop clears the runtime.
        is_first.then(|| RememberedRuntime)
    })
}

pub(crate) struct RememberedRuntime;

impl Drop for RememberedRuntime {
    fn drop(&mut self) {
        CALLER.set(None);
    }
}
