//! Keys are rotated under load, and no replay fails.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use semel_core::{Claim, ListQuery, MemoryStore, Outcome, Store};
use semel_sealed::{KeyRing, SealKeys, Sealed, seals_of};
use tokio::{task::JoinSet, time::sleep};

use crate::harness::{any_key, done, keys, line, request};

/// Two processes on one store, each with a ring of its own.
struct TwoNodes {
    bare: Arc<MemoryStore>,
    rings: [KeyRing; 2],
}

impl TwoNodes {
    fn with(keys: &SealKeys) -> Self {
        let rings = [KeyRing::new(keys.clone()), KeyRing::new(keys.clone())];
        Self { bare: Arc::default(), rings }
    }

    fn node(&self, number: usize) -> Sealed<Arc<MemoryStore>> {
        Sealed::new(self.bare.clone(), self.rings[number].clone())
    }

    /// Rotates one node after the other, as processes read their files.
    async fn rotate(&self, keys: &SealKeys) {
        for ring in &self.rings {
            ring.rotate(keys.clone()).unwrap();
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The progress of the load, for each task.
#[derive(Default)]
struct LoadProgress {
    end: AtomicBool,
    rounds: [AtomicU64; 4],
}

impl LoadProgress {
    /// Waits until every task has finished its current round.
    async fn finish_round(&self) {
        let rounds = || self.rounds.each_ref().map(|it| it.load(SeqCst));
        let before = rounds();
        while rounds().iter().zip(before).any(|(now, before)| *now < before + 2) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Records on one node and claims on both, until the load ends.
async fn load(nodes: Arc<TwoNodes>, number: usize, progress: Arc<LoadProgress>) {
    let (one, other) = (nodes.node(number % 2), nodes.node(1 - number % 2));
    while !progress.end.load(SeqCst) {
        let (key, outcome) = (any_key(), Arc::new(Outcome::success(format!("canary {number}"))));
        done(&one, key, outcome.clone()).await;
        for store in [&one, &other] {
            let Claim::Replay(replay) = store.claim(&request(key)).await.unwrap() else {
                panic!("not replayed")
            };
            assert_eq!(replay.outcome, outcome);
        }
        progress.rounds[number].fetch_add(1, SeqCst);
        tokio::task::yield_now().await;
    }
}

/// The new key first opens on every node, then seals on every node. The old key is removed when it has sealed no
/// record.
#[tokio::test(flavor = "multi_thread")]
async fn rotation_under_load_fails_no_replay() {
    let mut current = line("key-0");
    let nodes = Arc::new(TwoNodes::with(&keys(&[&current])));
    let (progress, mut tasks) = (Arc::new(LoadProgress::default()), JoinSet::new());
    for number in 0..progress.rounds.len() {
        tasks.spawn(load(nodes.clone(), number, progress.clone()));
    }
    for round in 1..=20 {
        let fresh = line(&format!("key-{round}"));
        nodes.rotate(&keys(&[&current, &fresh])).await;
        nodes.rotate(&keys(&[&fresh, &current])).await;
        // One retention later the records of the old key are gone, and earlier calls have ended.
        progress.finish_round().await;
        expire(&nodes, &format!("key-{}", round - 1)).await;
        nodes.rotate(&keys(&[&fresh])).await;
        current = fresh;
    }
    progress.end.store(true, SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(ids(&nodes.bare).await, HashSet::from(["key-20".to_owned()]));
}

async fn all(store: &MemoryStore) -> Vec<semel_core::Record> {
    store.list(&ListQuery { limit: usize::MAX, ..ListQuery::default() }).await.unwrap()
}

async fn ids(store: &MemoryStore) -> HashSet<String> {
    let owned = |ids: Vec<&str>| ids.into_iter().map(str::to_owned).collect::<Vec<_>>();
    all(store).await.iter().flat_map(|record| owned(seals_of(record).ids())).collect()
}

/// Forgets the records that the key `id` has sealed.
async fn expire(nodes: &TwoNodes, id: &str) {
    for record in all(&nodes.bare).await {
        if seals_of(&record).ids().contains(&id) {
            nodes.bare.forget(&record.key).await.unwrap();
        }
    }
}

#[tokio::test]
async fn records_sealed_before_a_rotation_open_after_it() {
    let (old, new) = (line("old"), line("new"));
    let ring = KeyRing::new(keys(&[&old]));
    let store = Sealed::new(Arc::new(MemoryStore::new()), ring.clone());
    let (before, after) = (any_key(), any_key());
    done(&store, before, Arc::new(Outcome::success("before"))).await;
    ring.rotate(keys(&[&new, &old])).unwrap();
    done(&store, after, Arc::new(Outcome::success("after"))).await;
    for key in [before, after] {
        assert!(matches!(store.claim(&request(key)).await, Ok(Claim::Replay(_))));
    }
    ring.rotate(keys(&[&new])).unwrap();
    assert!(matches!(store.claim(&request(after)).await, Ok(Claim::Replay(_))));
    assert!(store.claim(&request(before)).await.is_err(), "its key is gone");
}

/// If only one process has the new key, the other one fails with an error until it has the key too.
#[tokio::test]
async fn a_process_without_the_new_key_refuses_until_it_has_the_key() {
    let (old, new) = (line("old"), line("new"));
    let nodes = TwoNodes::with(&keys(&[&old]));
    nodes.rings[0].rotate(keys(&[&new, &old])).unwrap();
    let key = any_key();
    done(&nodes.node(0), key, Arc::new(Outcome::success("a"))).await;
    assert!(nodes.node(1).claim(&request(key)).await.is_err());
    nodes.rings[1].rotate(keys(&[&old, &new])).unwrap();
    assert!(matches!(nodes.node(1).claim(&request(key)).await, Ok(Claim::Replay(_))));
}
