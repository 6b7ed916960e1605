//! Engines of several processes on one store.

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

/// One process's way to records that all share.
#[derive(Clone, Debug)]
struct Node {
    number: usize,
    records: MemoryStore,
    leader: Arc<Mutex<Option<usize>>>,
    purges: Arc<AtomicUsize>,
    /// There is always more to purge.
    endless: bool,
    secret: Option<HashSecret>,
}

fn nodes() -> [Node; 2] {
    let (records, leader) = (MemoryStore::new(), Arc::default());
    [1, 2].map(|number| Node {
        number,
        records: records.clone(),
        leader: Arc::clone(&leader),
        purges: Arc::default(),
        endless: false,
        secret: None,
    })
}

impl Node {
    fn purges(&self) -> usize {
        self.purges.load(SeqCst)
    }

    fn engine(&self) -> Engine {
        let builder = Engine::builder().store(self.clone());
        builder.cleanup_every(Duration::from_millis(5)).build().unwrap()
    }
}

macro_rules! node {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Node {
            fn info(&self) -> StoreInfo {
                let hash_secret = self.secret.clone();
                StoreInfo { shared: true, hash_secret, ..self.records.info() }
            }
            $(async fn $step(&self, request: $request) -> $answer {
                node!(@ $step self request)
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

__store_steps!(node);

#[tokio::test]
async fn one_process_cleans_up_for_all_and_another_takes_over() {
    let [one, other] = nodes();
    *one.leader.lock() = Some(1);
    let _engines = [one.engine(), other.engine()];
    until("the leader cleans up", async || one.purges() > 5).await;
    assert_eq!(other.purges(), 0, "nobody else does");
    *one.leader.lock() = Some(2);
    until("the next leader cleans up", async || other.purges() > 5).await;
    let before = one.purges();
    until("and goes on", async || other.purges() > 15).await;
    assert!(one.purges() <= before + 1, "the first has stopped");
}

/// A backlog takes longer than a term.
#[tokio::test]
async fn a_leader_that_is_replaced_in_the_middle_of_a_long_cleanup_stops() {
    let [one, other] = nodes().map(|node| Node { endless: true, ..node });
    *one.leader.lock() = Some(1);
    let _engines = [one.engine(), other.engine()];
    until("the leader cleans up", async || one.purges() > 5).await;
    *one.leader.lock() = Some(2);
    let before = one.purges();
    until("the next leader cleans up", async || other.purges() > 100).await;
    assert!(one.purges() <= before + 1, "the first has stopped");
}

#[tokio::test]
async fn a_secret_that_a_shared_store_did_not_compare_is_refused() {
    let [node, _] = nodes();
    let [given, agreed] = [HashSecret::random(), HashSecret::random()];
    let build = |node: &Node| Engine::builder().store(node.clone()).hash_secret(given.clone());
    for secret in [None, Some(agreed)] {
        let error = build(&Node { secret, ..node.clone() }).build().unwrap_err();
        assert!(error.to_string().contains("give it to the store"), "{error}");
    }
    let node = Node { secret: Some(given.clone()), ..node };
    assert!(build(&node).build().is_ok());
    assert!(Engine::builder().store(node).build().is_ok(), "the store's own is enough");
}
