//! Whose task it is that calls, also while semel's own runtime is entered for its timers.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::runtime::Handle;

/// Somebody has asked. Until then nobody pays for the answer.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLER: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// The runtime that calls.
#[cfg(not(shuttle))]
pub fn current() -> Option<Handle> {
    // Not written each time: all threads have it in their caches.
    if !IS_ASKED.load(Relaxed) {
        IS_ASKED.store(true, Relaxed);
    }
    CALLER.with_borrow(Clone::clone).or_else(|| Handle::try_current().ok())
}

/// Notes the runtime that calls, until this is dropped. Of two, one within the other, the first counts.
pub(crate) fn noted() -> Option<Noted> {
    if !IS_ASKED.load(Relaxed) {
        return None;
    }
    CALLER.with_borrow_mut(|caller| {
        let is_first = caller.is_none();
        if is_first {
            *caller = Handle::try_current().ok();
        }
        // Not made in vain: its end takes the note away.
        is_first.then(|| Noted)
    })
}

pub(crate) struct Noted;

impl Drop for Noted {
    fn drop(&mut self) {
        CALLER.set(None);
    }
}
