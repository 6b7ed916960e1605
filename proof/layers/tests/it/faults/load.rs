//! A load on several nodes: every key is called on every node, several times, and its runs are counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use semel_core::{
    Engine, ErrorKind, Fingerprint, Key, Policy, Principal, RunError, Scope, Store, WorkError,
};
use tokio::{task::JoinSet, time::sleep};

/// The result of a caller.
#[derive(Debug, Default)]
pub(crate) struct LoadTally {
    /// Keys that ran more than once.
    pub(crate) twice: u32,
    /// Calls that failed because the store was down.
    pub(crate) failed: u32,
    pub(crate) keys: u32,
}

pub(crate) fn engine(store: impl Store) -> Engine {
    let policy = Policy::api().lease(Duration::from_secs(20)).wait(Duration::from_secs(20));
    Engine::builder().store(store).policy(policy).build().unwrap()
}

pub(crate) fn key(id: &str) -> Key {
    Scope::new("layers", Principal::Anonymous, "count").key(id).unwrap()
}

/// Callers that call every engine with the same new keys until [`LayerLoad::end`].
pub(crate) struct LayerLoad {
    stop: Arc<AtomicBool>,
    callers: JoinSet<LoadTally>,
}

impl LayerLoad {
    const CALLERS: usize = 4;

    pub(crate) fn start(engines: &[Engine]) -> Self {
        let (stop, mut callers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for caller in 0..Self::CALLERS {
            let (stop, engines) = (stop.clone(), engines.to_vec());
            callers.spawn(async move {
                let mut tally = LoadTally::default();
                while !stop.load(SeqCst) {
                    let id = format!("{caller}-{}-{:08x}", tally.keys, rand::random::<u32>());
                    call_all(&engines, &id, &mut tally).await;
                }
                tally
            });
        }
        Self { stop, callers }
    }

    pub(crate) async fn end(self) -> LoadTally {
        self.stop.store(true, SeqCst);
        let tallies = self.callers.join_all().await;
        tallies.into_iter().fold(LoadTally::default(), |sum, it| LoadTally {
            twice: sum.twice + it.twice,
            failed: sum.failed + it.failed,
            keys: sum.keys + it.keys,
        })
    }
}

/// Calls the key on every engine at once, and then once more.
async fn call_all(engines: &[Engine], id: &str, tally: &mut LoadTally) {
    let runs = Arc::new(AtomicU32::new(0));
    tally.keys += 1;
    for _ in 0..2 {
        let mut calls = JoinSet::new();
        for engine in engines {
            calls.spawn(run(engine.clone(), id.to_owned(), runs.clone()));
        }
        tally.failed += calls.join_all().await.into_iter().map(u32::from).sum::<u32>();
    }
    tally.twice += u32::from(runs.load(SeqCst) > 1);
}

/// Runs a key, and retries while it is busy. True when the store failed.
pub(crate) async fn run(engine: Engine, id: String, runs: Arc<AtomicU32>) -> bool {
    loop {
        let runs = runs.clone();
        let work = move |_| async move {
            runs.fetch_add(1, SeqCst);
            Ok::<_, WorkError>("done".to_owned())
        };
        match engine.run(key(&id), Fingerprint::of(&"this").unwrap(), work).await {
            Ok(answer) => {
                assert_eq!(answer.value, "done");
                return false;
            }
            Err(RunError::Busy { .. }) => sleep(Duration::from_millis(50)).await,
            Err(RunError::Store(error)) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                return true;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}
