//! From a list of promises to tests of their own.

use semel_core::Store;
use tokio::runtime::{Builder, Runtime};

use crate::{Promise, Time};

/// Expands every promise into a test with the promise's name.
///
/// Takes an expression that makes `(store, time)`. It is evaluated in an async context, once for
/// each test. It may also make an `Option` of that: `None` skips the test, for a server that is not
/// there.
///
/// ```
/// use semel_core::{ManualClock, MemoryStore};
///
/// async fn open() -> (MemoryStore, ManualClock) {
///     let clock = ManualClock::new();
///     let store = MemoryStore::builder().clock(clock.clone()).build().expect("default bounds");
///     (store, clock)
/// }
///
/// semel_conformance::store_tests!(open().await);
/// ```
#[macro_export]
macro_rules! store_tests {
    ($open:expr $(,)?) => {
        $crate::__for_each_promise! { [$crate::__tests] [$open] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([$open:expr] $($subject:ident { $($promise:ident)* })*) => {
        $($(
            #[test]
            fn $promise() {
                let name = concat!(stringify!($subject), "::", stringify!($promise));
                $crate::__run(name, async { $open });
            }
        )*)*
    };
}

/// What a setup made: a store and its time, or nothing when there is no server.
pub trait Setup {
    /// The store and its time.
    fn into_parts(self) -> Option<(Box<dyn Store>, Box<dyn Time>)>;
}

impl<S: Store, T: Time + 'static> Setup for (S, T) {
    fn into_parts(self) -> Option<(Box<dyn Store>, Box<dyn Time>)> {
        Some((Box::new(self.0), Box::new(self.1)))
    }
}

impl<S: Setup> Setup for Option<S> {
    fn into_parts(self) -> Option<(Box<dyn Store>, Box<dyn Time>)> {
        self.and_then(Setup::into_parts)
    }
}

/// Runs one promise on a runtime of its own.
#[doc(hidden)]
pub fn __run<S: Setup>(name: &str, open: impl Future<Output = S>) {
    runtime().block_on(async {
        let Some((store, time)) = open.await.into_parts() else {
            eprintln!("skipped, no store to test: {name}");
            return;
        };
        named(name).check(&*store, &*time).await;
    });
}

fn named(name: &str) -> Promise {
    *crate::ALL.iter().find(|promise| promise.name() == name).expect("one list names both")
}

/// Threads of its own, so that races are races.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime for the test")
}
