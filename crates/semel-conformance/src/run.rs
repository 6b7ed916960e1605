//! Expands the list of promises into tests.

use semel_core::Store;
use tokio::runtime::{Builder, Runtime};

use crate::{Promise, Time};

/// Expands every promise into a test with the promise's name.
///
/// Takes an expression that makes `(store, time)`. It is evaluated in an async context, once for
/// each test, and should fail if there is no server: a promise that was not tested is not kept.
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

/// Runs one promise on a runtime of its own.
#[doc(hidden)]
pub fn __run<S: Store, T: Time>(name: &str, open: impl Future<Output = (S, T)>) {
    runtime().block_on(async {
        let (store, time) = open.await;
        named(name).check(&store, &time).await;
    });
}

fn named(name: &str) -> Promise {
    *crate::ALL.iter().find(|promise| promise.name() == name).expect("one list names both")
}

/// A runtime with two threads, so that races can happen.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime for the test")
}
