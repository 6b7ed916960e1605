//! Keys are rotated under load, and no replay fails.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use semel_core::{Claim, ListQuery, MemoryStore, Outcome, Store};
use semel_sealed::{KeyRing, Keys, Sealed, seals_of};
use tokio::{task::JoinSet, time::sleep};

use self::common::{any_key, done, keys, line, request};

/// Two processes on one store, each with a ring of its own.
struct Fleet {
    bare: Arc<MemoryStore>,
    rings: [KeyRing; 2],
}

impl Fleet {
    fn with(keys: &Keys) -> Self {
        let rings = [KeyRing::new(keys.clone()), KeyRing::new(keys.clone())];
        Self { bare: Arc::default(), rings }
    }

    fn node(&self, number: usize) -> Sealed<Arc<MemoryStore>> {
        Sealed::new(self.bare.clone(), self.rings[number].clone())
    }

    /// One after the other, as processes read their files.
    async fn rotate(&self, keys: &Keys) {
        for ring in &self.rings {
            ring.rotate(keys.clone()).unwrap();
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// What the load has done so far, each task for itself.
#[derive(Default)]
struct Progress {
    end: AtomicBool,
    rounds: [AtomicU64; 4],
}

impl Progress {
    /// Waits until whatever every task was about has come to its end.
    async fn pass(&self) {
        let rounds = || self.rounds.each_ref().map(|it| it.load(SeqCst));
        let before = rounds();
        while rounds().iter().zip(before).any(|(now, before)| *now < before + 2) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Records on one node and asks again on both, until it is told to end.
async fn load(fleet: Arc<Fleet>, number: usize, progress: Arc<Progress>) {
    let (here, there) = (fleet.node(number % 2), fleet.node(1 - number % 2));
    while !progress.end.load(SeqCst) {
        let (key, outcome) = (any_key(), Arc::new(Outcome::success(format!("canary {number}"))));
        done(&here, key, outcome.clone()).await;
        for store in [&here, &there] {
            let Claim::Replay(replay) = store.claim(&request(key)).await.unwrap() else {
                panic!("not replayed")
            };
            assert_eq!(replay.outcome, outcome);
        }
        progress.rounds[number].fetch_add(1, SeqCst);
        tokio::task::yield_now().await;
    }
}

/// The new key opens everywhere, then seals everywhere, then the old one is taken out once nothing is
/// sealed with it.
#[tokio::test(flavor = "multi_thread")]
async fn rotation_under_load_fails_no_replay() {
    let mut current = line("key-0");
    let fleet = Arc::new(Fleet::with(&keys(&[&current])));
    let (progress, mut tasks) = (Arc::new(Progress::default()), JoinSet::new());
    for number in 0..progress.rounds.len() {
        tasks.spawn(load(fleet.clone(), number, progress.clone()));
    }
    for round in 1..=20 {
        let fresh = line(&format!("key-{round}"));
        fleet.rotate(&keys(&[&current, &fresh])).await;
        fleet.rotate(&keys(&[&fresh, &current])).await;
        // One retention later what was sealed with the old key is gone, and what ran then has ended.
        progress.pass().await;
        expire(&fleet, &format!("key-{}", round - 1)).await;
        fleet.rotate(&keys(&[&fresh])).await;
        current = fresh;
    }
    progress.end.store(true, SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(ids(&fleet.bare).await, HashSet::from(["key-20".to_owned()]));
}

async fn all(store: &MemoryStore) -> Vec<semel_core::Record> {
    store.list(&ListQuery { limit: usize::MAX, ..ListQuery::default() }).await.unwrap()
}

async fn ids(store: &MemoryStore) -> HashSet<String> {
    let owned = |ids: Vec<&str>| ids.into_iter().map(str::to_owned).collect::<Vec<_>>();
    all(store).await.iter().flat_map(|record| owned(seals_of(record).ids())).collect()
}

/// Forgets what `id` has sealed.
async fn expire(fleet: &Fleet, id: &str) {
    for record in all(&fleet.bare).await {
        if seals_of(&record).ids().contains(&id) {
            fleet.bare.forget(&record.key).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_sealed_before_opens_after() {
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

/// A ring that was changed on one process only fails loudly on the other, and heals when that follows.
#[tokio::test]
async fn a_process_that_lags_behind_refuses_until_it_follows() {
    let (old, new) = (line("old"), line("new"));
    let fleet = Fleet::with(&keys(&[&old]));
    fleet.rings[0].rotate(keys(&[&new, &old])).unwrap();
    let key = any_key();
    done(&fleet.node(0), key, Arc::new(Outcome::success("a"))).await;
    assert!(fleet.node(1).claim(&request(key)).await.is_err());
    fleet.rings[1].rotate(keys(&[&old, &new])).unwrap();
    assert!(matches!(fleet.node(1).claim(&request(key)).await, Ok(Claim::Replay(_))));
}
