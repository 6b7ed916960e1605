//! The kit is patient: a store whose every call takes 50 ms keeps every promise too.

use std::{sync::Arc, time::Duration};

use semel_conformance::{ALL, RealTime, Subject, Time, state_machine};
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, MemoryStore, Purged, Record, Release, ReleaseRequest,
    RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
};
use tokio::{runtime::Runtime, time::sleep};

/// One way to the server; there and back is a call.
const WAY: Duration = Duration::from_millis(25);

#[derive(Debug)]
struct Slow(MemoryStore);

macro_rules! slow {
    ($($name:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait::async_trait]
        impl Store for Slow {
            fn info(&self) -> StoreInfo {
                self.0.info()
            }
            $(async fn $name(&self, request: $request) -> $answer {
                sleep(WAY).await;
                let answer = self.0.$name(request).await;
                sleep(WAY).await;
                answer
            })*
            async fn stats(&self) -> Result<Stats> {
                self.0.stats().await
            }
        }
    };
}

slow! {
    claim(&ClaimRequest) -> Result<Claim>;
    renew(&RenewRequest) -> Result<Renewal>;
    complete(&CompleteRequest) -> Result<Completion>;
    release(&ReleaseRequest) -> Result<Release>;
    abandon(&AbandonRequest) -> Result<Abandonment>;
    claim_many(&[ClaimRequest]) -> Vec<Result<Claim>>;
    renew_many(&[RenewRequest]) -> Vec<Result<Renewal>>;
    complete_many(&[CompleteRequest]) -> Vec<Result<Completion>>;
    release_many(&[ReleaseRequest]) -> Vec<Result<Release>>;
    resolve(&ResolveRequest) -> Result<Resolution>;
    erase(&KeyHash) -> Result<Erasure>;
    purge(usize) -> Result<Purged>;
    forget(&KeyHash) -> Result<Forgetting>;
    get(&KeyHash) -> Result<Option<Sighting>>;
    list(&ListQuery) -> Result<Vec<Record>>;
}

struct SlowSubject(Slow, RealTime);

impl Subject for SlowSubject {
    async fn open() -> Self {
        Self(Slow(MemoryStore::new()), RealTime::default())
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

/// All at once: they share one store, and each has keys of its own.
#[test]
fn a_slow_store_keeps_every_promise() {
    Runtime::new().unwrap().block_on(async {
        let store = Arc::new(Slow(MemoryStore::new()));
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
