//! Work that runs past `max_run`, while requests for its key come to the same process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use shuttle::{
    future::spawn,
    rand::{Rng, thread_rng},
};

use super::{LEASE, YieldingStore, engine, fingerprint, key, maybe_yield, policy};
use crate::{
    Engine, OnLostOwner, Policy, RunError, State, Store, WorkError,
    sync::{Instant, TimeAdvances, explore, time::sleep},
};

/// The first run takes up to six leases, the next one no time at all.
#[derive(Clone)]
struct LongRuns {
    began: Instant,
    count: Arc<AtomicU32>,
}

impl LongRuns {
    fn new() -> Self {
        Self { began: Instant::now(), count: Arc::default() }
    }

    async fn work(self) -> Result<u32, WorkError> {
        let run = self.count.fetch_add(1, SeqCst) + 1;
        if run == 1 {
            sleep(LEASE * thread_rng().gen_range(0..=6)).await;
        } else {
            assert!(self.began.elapsed() >= LEASE, "a second run needs a lease that is over");
            maybe_yield().await;
        }
        Ok(run)
    }

    /// Repeats the request while the key is busy.
    async fn run_until_answered(self, engine: Engine) -> Result<u32, RunError> {
        loop {
            let work = self.clone();
            match engine.run(key(), fingerprint(), move |_| work.work()).await {
                Err(RunError::Busy { retry_after }) => {
                    assert!(self.began.elapsed() < LEASE * 5, "busy although the lease is over");
                    sleep(retry_after.min(Duration::from_secs(3))).await;
                }
                answer => return answer.map(|answer| answer.value),
            }
        }
    }
}

fn short(policy: Policy) -> Policy {
    policy.max_run(LEASE)
}

#[test]
fn one_outcome_is_recorded_whether_the_first_run_is_taken_over_or_not() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new();
        let engine = engine(&store).with_policy(short(policy())).expect("valid");
        let runs = LongRuns::new();
        let calls = (0..3)
            .map(|_| spawn(runs.clone().run_until_answered(engine.clone())))
            .collect::<Vec<_>>();
        let answers = join_all(calls).await.into_iter();
        let answers = answers.map(|answer| answer.expect("the caller ends by itself"));
        let answers: Vec<_> = answers.map(|answer| answer.expect("answered")).collect();
        let run = runs.count.load(SeqCst);
        assert!(run <= 2, "the second run ends in time, so there is no third");
        let replay = runs.clone().run_until_answered(engine.clone()).await.expect("recorded");
        assert_eq!(answers, [replay; 3], "one outcome is recorded, and every caller gets it");
        assert_eq!(runs.count.load(SeqCst), run);
        assert_eq!(engine.shutdown(LEASE).await, 0);
    });
}

#[test]
fn under_hold_nothing_runs_twice_and_a_late_outcome_still_counts() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new();
        let hold = short(policy()).on_lost_owner(OnLostOwner::Hold);
        let engine = engine(&store).with_policy(hold).expect("valid");
        let runs = LongRuns::new();
        let calls = (0..3)
            .map(|_| spawn(runs.clone().run_until_answered(engine.clone())))
            .collect::<Vec<_>>();
        for answer in join_all(calls).await {
            match answer.expect("the caller ends by itself") {
                Ok(run) => assert_eq!(run, 1),
                Err(error) => assert!(matches!(error, RunError::Unknown), "{error:?}"),
            }
        }
        assert_eq!(runs.count.load(SeqCst), 1, "held");
        let sighting = store.records.get(&engine.key_hash(&key())).await.expect("memory");
        assert_eq!(sighting.expect("claimed").record.state, State::Completed);
    });
}
