//! Engines of several processes on one shared store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use semel_core::{
    __store_steps, Engine, HashSecret, MemoryStore, Purged, Result, Stats, Store, StoreInfo,
};

use super::until;

/// The store of one process; all processes share its records.
#[derive(Clone, Debug)]
struct ProcessStore {
    number: usize,
    records: MemoryStore,
    leader: Arc<Mutex<Option<usize>>>,
    purges: Arc<AtomicUsize>,
    /// If true, there is always more to purge.
    endless: bool,
    secret: Option<HashSecret>,
}

fn processes() -> [ProcessStore; 2] {
    let (records, leader) = (MemoryStore::new(), Arc::default());
    [1, 2].map(|number| ProcessStore {
        number,
        records: records.clone(),
        leader: Arc::clone(&leader),
        purges: Arc::default(),
        endless: false,
        secret: None,
    })
}

impl ProcessStore {
    fn purges(&self) -> usize {
        self.purges.load(SeqCst)
    }

    fn engine(&self) -> Engine {
        let builder = Engine::builder().store(self.clone());
        builder.cleanup_every(Duration::from_millis(5)).build().unwrap()
    }
}

macro_rules! process_store {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for ProcessStore {
            fn info(&self) -> StoreInfo {
                let hash_secret = self.secret.clone();
                StoreInfo { shared: true, hash_secret, ..self.records.info() }
            }
            $(async fn $step(&self, request: $request) -> $reply {
                process_store!(@ $step self request)
            })*
            async fn stats(&self) -> Result<Stats> {
                self.records.stats().await
            }
        }
    };
    (@ lead $self:ident $term:ident) => {{
        assert!(!$term.is_zero());
        Ok(*$self.leader.lock() == Some($self.number))
    }};
    (@ purge $self:ident $limit:ident) => {{
        $self.purges.fetch_add(1, SeqCst);
        match $self.endless {
            true => Ok(Purged { deleted: $limit, held: 0 }),
            false => $self.records.purge($limit).await,
        }
    }};
    (@ $step:ident $self:ident $request:ident) => {
        $self.records.$step($request).await
    };
}

__store_steps!(process_store);

#[tokio::test]
async fn one_process_cleans_up_for_all_and_another_takes_over() {
    let [one, other] = processes();
    *one.leader.lock() = Some(1);
    let _engines = [one.engine(), other.engine()];
    until("the leader cleans up", async || one.purges() > 5).await;
    assert_eq!(other.purges(), 0, "no other process does");
    *one.leader.lock() = Some(2);
    until("the next leader cleans up", async || other.purges() > 5).await;
    let before = one.purges();
    until("and goes on", async || other.purges() > 15).await;
    assert!(one.purges() <= before + 1, "the first has stopped");
}

/// Purging many records takes longer than a term.
#[tokio::test]
async fn a_leader_that_is_replaced_in_the_middle_of_a_long_cleanup_stops() {
    let [one, other] = processes().map(|store| ProcessStore { endless: true, ..store });
    *one.leader.lock() = Some(1);
    let _engines = [one.engine(), other.engine()];
    until("the leader cleans up", async || one.purges() > 5).await;
    *one.leader.lock() = Some(2);
    let before = one.purges();
    until("the next leader cleans up", async || other.purges() > 100).await;
    assert!(one.purges() <= before + 1, "the first has stopped");
}

#[tokio::test]
async fn a_secret_that_is_not_the_shared_stores_is_refused() {
    let [store, _] = processes();
    let [given, agreed] = [HashSecret::random(), HashSecret::random()];
    let build =
        |store: &ProcessStore| Engine::builder().store(store.clone()).hash_secret(given.clone());
    for secret in [None, Some(agreed)] {
        let error = build(&ProcessStore { secret, ..store.clone() }).build().unwrap_err();
        assert!(error.to_string().contains("give it to the store"), "{error}");
    }
    let store = ProcessStore { secret: Some(given.clone()), ..store };
    assert!(build(&store).build().is_ok());
    assert!(Engine::builder().store(store).build().is_ok(), "the store's own secret is enough");
}
