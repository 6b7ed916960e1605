//! Tests of the engine, each named after the promise that it checks.

mod faulty_store;
mod first_poll;
mod lost_owner;
mod past_max_run;
mod races;
mod recorded_outcome;
mod run;
mod run_many;
mod shared_store;
mod store_failure;
mod trial;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use semel_core::{
    Engine, Fingerprint, Key, ManualClock, MemoryStore, OnLostOwner, Policy, Principal, Scope,
    Store,
};

/// A lease long enough to be renewed on a busy machine, short enough to wait for.
const LEASE: Duration = Duration::from_millis(500);

fn key(id: &str) -> Key {
    Scope::new("test", Principal::from("tester"), "work").key(id).unwrap()
}

fn fingerprint(content: &str) -> Fingerprint {
    Fingerprint::of_bytes(content.as_bytes())
}

fn policy() -> Policy {
    let patience = Duration::from_secs(20);
    let policy = Policy::api().lease(LEASE).wait(patience).store_timeout(patience);
    policy.backoff(Duration::from_millis(1))
}

fn hold() -> Policy {
    policy().on_lost_owner(OnLostOwner::Hold)
}

fn engine(store: impl Store, policy: Policy) -> Engine {
    Engine::builder().store(store).policy(policy).build().unwrap()
}

/// An engine on a store with a manual clock.
fn with_manual_clock(policy: Policy) -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (engine(store, policy), clock)
}

/// Counts the runs of the work.
#[derive(Clone, Default)]
struct RunCounter(Arc<AtomicU32>);

impl RunCounter {
    /// Counts a run and returns its number.
    fn next(&self) -> u32 {
        self.0.fetch_add(1, SeqCst) + 1
    }

    fn count(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// Waits until the condition is true. Fails after twenty seconds.
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..2000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited too long for: {what}");
}

/// Work that waits until the gate opens.
fn gated(
    gate: &tokio::sync::watch::Sender<bool>,
    runs: &RunCounter,
) -> impl FnOnce(
    semel_core::Context,
) -> futures_util::future::BoxFuture<'static, Result<u32, semel_core::WorkError>>
+ Send
+ 'static {
    let (mut gate, runs) = (gate.subscribe(), runs.clone());
    move |_| {
        Box::pin(async move {
            let run = runs.next();
            gate.wait_for(|open| *open).await.unwrap();
            Ok(run)
        })
    }
}
