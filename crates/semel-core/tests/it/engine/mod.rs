//! The engine's promises, each a test named after it.

mod faulty_store;
mod first_poll;
mod lost_owner;
mod past_max_run;
mod races;
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
const LEASE: Duration = Duration::from_millis(300);

fn key(id: &str) -> Key {
    Scope::new("test", Principal::from("tester"), "work").key(id).unwrap()
}

fn asked(what: &str) -> Fingerprint {
    Fingerprint::of_bytes(what.as_bytes())
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

/// An engine on a store whose clock moves only when told to.
fn manual(policy: Policy) -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (engine(store, policy), clock)
}

/// Counts runs.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicU32>);

impl Runs {
    /// Counts one more and says which it is.
    fn next(&self) -> u32 {
        self.0.fetch_add(1, SeqCst) + 1
    }

    fn count(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// Waits for a condition, not for time. Fails after a bound no healthy machine reaches.
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
    runs: &Runs,
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
