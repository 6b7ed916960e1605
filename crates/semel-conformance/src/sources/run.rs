//! Expands the list of promises into tests.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
};

use futures_util::FutureExt;

use super::{ALL, Broker, SourceFixture, stall::StallWatch};
use crate::run::runtime;

/// How often a promise is checked if the machine stalls each time.
const CHECKS: u32 = 5;

/// Expands every promise of a source into a test with the promise's name.
///
/// Takes an async function from [`Broker`](crate::sources::Broker) to a
/// [`SourceFixture`](crate::sources::SourceFixture). It is called once for each test, and should fail if there is no
/// broker. A promise that the fixture does not support passes, and prints so.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use semel_conformance::sources::{Broker, SourceAbility, SourceFixture};
/// use semel_consumer::{Message, Source, memory::MemorySource};
///
/// struct Memory(MemorySource);
///
/// #[async_trait::async_trait]
/// impl SourceFixture for Memory {
///     async fn publish(&self, message: Message) {
///         self.0.publish(message);
///     }
///     async fn open(&self) -> Arc<dyn Source> {
///         Arc::new(self.0.clone())
///     }
///     async fn restart_broker(&self) {
///         self.0.take_back();
///     }
///     fn unsupported(&self) -> &[SourceAbility] {
///         &[]
///     }
///     fn ack_deadline(&self) -> Duration {
///         Duration::from_millis(500)
///     }
///     fn patience(&self) -> Duration {
///         Duration::from_secs(60)
///     }
///     fn events(&self) -> usize {
///         2_000
///     }
/// }
///
/// async fn memory(_: Broker) -> Memory {
///     Memory(MemorySource::with_ack_deadline(Duration::from_millis(500)))
/// }
///
/// semel_conformance::source_tests!(memory);
/// ```
#[macro_export]
macro_rules! source_tests {
    ($open:expr $(,)?) => {
        $crate::__for_each_source_promise! { [$crate::__source_tests] [$open] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __source_tests {
    ([$open:expr] $($subject:ident { $($promise:ident [$($ability:ident)*] $says:literal)* })*) => {
        $($(
            #[test]
            fn $promise() {
                let name = concat!(stringify!($subject), "::", stringify!($promise));
                $crate::sources::__run(name, $open);
            }
        )*)*
    };
}

/// Checks one promise on a runtime of its own. A deadline may end too early while the machine stalls, so a promise that
/// fails then is checked again, on a fresh queue; a source that breaks the promise fails then too.
#[doc(hidden)]
pub fn __run<F: SourceFixture, O: Future<Output = F>>(name: &str, open: impl Fn(Broker) -> O) {
    let promise = *ALL.iter().find(|promise| promise.name() == name).expect("one list names both");
    for check in 1.. {
        let runtime = runtime();
        let (missing, stall, result) = runtime.block_on(async {
            let fixture: Arc<dyn SourceFixture> = Arc::new(open(promise.broker()).await);
            if let Some(ability) = promise.missing_ability(&*fixture) {
                return (Some(ability), None, Ok(()));
            }
            let stalls = StallWatch::start(fixture.ack_deadline() / 2);
            let result = AssertUnwindSafe(promise.check(fixture)).catch_unwind().await;
            (None, stalls.longest(), result)
        });
        runtime.shutdown_background();
        match (missing, stall, result) {
            (Some(ability), _, _) => {
                return println!("not shown: {name}: the broker does not support {ability}");
            }
            (None, _, Ok(())) => return,
            (None, Some(stall), Err(_)) if check < CHECKS => {
                eprintln!("the machine stalled for {stall:?}; {name} is checked again");
            }
            (None, _, Err(cause)) => resume_unwind(cause),
        }
    }
}
