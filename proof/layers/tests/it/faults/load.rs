//! Nodes under load: every key is asked for on every node, many times, and counts who runs it.

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

/// How a caller stands after a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Keys that ran more than once.
    pub(crate) twice: u32,
    /// Calls that failed for want of a store.
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

/// Asks every engine for the same new keys until told to stop.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    callers: JoinSet<Tally>,
}

impl Load {
    const CALLERS: usize = 4;

    pub(crate) fn start(engines: &[Engine]) -> Self {
        let (stop, mut callers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for caller in 0..Self::CALLERS {
            let (stop, engines) = (stop.clone(), engines.to_vec());
            callers.spawn(async move {
                let mut tally = Tally::default();
                while !stop.load(SeqCst) {
                    let id = format!("{caller}-{}-{:08x}", tally.keys, rand::random::<u32>());
                    ask_all(&engines, &id, &mut tally).await;
                }
                tally
            });
        }
        Self { stop, callers }
    }

    pub(crate) async fn end(self) -> Tally {
        self.stop.store(true, SeqCst);
        let tallies = self.callers.join_all().await;
        tallies.into_iter().fold(Tally::default(), |sum, it| Tally {
            twice: sum.twice + it.twice,
            failed: sum.failed + it.failed,
            keys: sum.keys + it.keys,
        })
    }
}

/// Twins on every engine at once, then each of them again.
async fn ask_all(engines: &[Engine], id: &str, tally: &mut Tally) {
    let runs = Arc::new(AtomicU32::new(0));
    tally.keys += 1;
    for _ in 0..2 {
        let mut asked = JoinSet::new();
        for engine in engines {
            asked.spawn(run(engine.clone(), id.to_owned(), runs.clone()));
        }
        tally.failed += asked.join_all().await.into_iter().map(u32::from).sum::<u32>();
    }
    tally.twice += u32::from(runs.load(SeqCst) > 1);
}

/// True when the store failed. Who is told that the key is busy asks again, as clients do.
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
