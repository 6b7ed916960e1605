//! A store whose every call takes 50 ms passes the suite too.

use std::{sync::Arc, time::Duration};

use semel_conformance::{ALL, RealTime, Subject, Time, state_machine};
use semel_core::{MemoryStore, Result, Stats, Store, StoreInfo};
use tokio::{runtime::Runtime, time::sleep};

/// The latency of one direction; a call has two.
const ONE_WAY: Duration = Duration::from_millis(25);

#[derive(Debug)]
struct SlowStore(MemoryStore);

macro_rules! slow_store {
    ($($name:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait::async_trait]
        impl Store for SlowStore {
            fn info(&self) -> StoreInfo {
                self.0.info()
            }
            $(async fn $name(&self, request: $request) -> $answer {
                sleep(ONE_WAY).await;
                let answer = self.0.$name(request).await;
                sleep(ONE_WAY).await;
                answer
            })*
            async fn stats(&self) -> Result<Stats> {
                self.0.stats().await
            }
        }
    };
}

semel_core::__store_steps!(slow_store);

struct SlowSubject(SlowStore, RealTime);

impl Subject for SlowSubject {
    async fn open() -> Self {
        Self(SlowStore(MemoryStore::new()), RealTime::default())
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
    fn tolerance(&self) -> Duration {
        Duration::from_millis(10)
    }
}

/// All promises run concurrently on one store, each with keys of its own.
#[test]
fn a_slow_store_keeps_every_promise() {
    Runtime::new().unwrap().block_on(async {
        let store = Arc::new(SlowStore(MemoryStore::new()));
        let check = |promise: &'static semel_conformance::Promise| {
            let store = store.clone();
            tokio::spawn(async move { promise.check(&*store, &RealTime::default()).await })
        };
        let checks: Vec<_> = ALL.iter().map(check).collect();
        for check in checks {
            check.await.unwrap();
        }
    });
}

#[test]
fn a_slow_store_follows_the_protocol() {
    state_machine::<SlowSubject>(1, 15);
}
