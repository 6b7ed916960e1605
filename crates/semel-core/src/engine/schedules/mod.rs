//! Schedule tests: the engine's promises under many orders of its tasks and threads, explored by shuttle.

mod change_feed;
mod first_poll;
mod late_claim_reply;
mod past_max_run;
mod renewal;
mod singleflight;
mod waiters;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use shuttle::rand::{Rng, thread_rng};

use super::Engine;
use crate::{
    __store_steps, ChangeFeed, Fingerprint, Key, MemoryStore, Policy, Principal, Result, Scope,
    Stats, Store, StoreInfo,
    sync::{
        Instant,
        time::{VirtualStoreClock, sleep},
        yield_now,
    },
};

const LEASE: Duration = Duration::from_secs(30);

/// Shorter than a lease: a caller that gets its answer within this time did not wait for a lease to end.
const WAIT: Duration = Duration::from_secs(10);

fn policy() -> Policy {
    Policy::api().lease(LEASE).wait(WAIT).backoff(Duration::from_millis(10))
}

fn engine(store: &YieldingStore) -> Engine {
    Engine::builder().store(store.clone()).policy(policy()).build().expect("a valid policy")
}

fn key() -> Key {
    Scope::new("test", Principal::from("tester"), "work").key("a").expect("a valid key")
}

fn fingerprint() -> Fingerprint {
    Fingerprint::of_bytes(b"x")
}

/// A store on the virtual clock. Each step is atomic, and may yield before and after, so that other tasks run.
#[derive(Clone, Debug)]
struct YieldingStore {
    records: MemoryStore,
    delay: Option<(&'static str, Duration)>,
    feed: Option<ChangeFeed>,
    calls: Arc<Mutex<Vec<(&'static str, Instant)>>>,
}

impl YieldingStore {
    fn new() -> Self {
        let records =
            MemoryStore::builder().clock(VirtualStoreClock).build().expect("valid bounds");
        Self { records, delay: None, feed: None, calls: Arc::default() }
    }

    /// Delays one step by this time; `Duration::MAX` means that it never replies.
    fn slow(self, step: &'static str, takes: Duration) -> Self {
        Self { delay: Some((step, takes)), ..self }
    }

    /// When `step` was requested.
    fn calls(&self, step: &str) -> Vec<Instant> {
        let calls = self.calls.lock();
        calls.iter().filter(|(name, _)| *name == step).map(|(_, at)| *at).collect()
    }

    /// Notifies the change feed after a completion.
    fn notify(&self, step: &'static str) {
        if let Some(feed) = self.feed.as_ref().filter(|_| step == "complete") {
            self.calls.lock().push(("completed", Instant::now()));
            feed.notify_all();
        }
    }

    async fn receive(&self, step: &'static str) {
        self.calls.lock().push((step, Instant::now()));
        maybe_yield().await;
        match self.delay {
            Some((name, Duration::MAX)) if name == step => std::future::pending().await,
            Some((name, takes)) if name == step => sleep(takes).await,
            Some(_) | None => {}
        }
    }
}

/// Half of all calls, and half of all work, are ready at their first poll.
async fn maybe_yield() {
    if thread_rng().gen_bool(0.5) {
        yield_now().await;
    }
}

macro_rules! yielding_store {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for YieldingStore {
            fn info(&self) -> StoreInfo {
                StoreInfo { change_feed: self.feed.clone(), ..self.records.info() }
            }
            $(async fn $step(&self, request: $request) -> $reply {
                self.receive(stringify!($step)).await;
                let reply = self.records.$step(request).await;
                self.notify(stringify!($step));
                maybe_yield().await;
                reply
            })*
            async fn stats(&self) -> Result<Stats> {
                self.records.stats().await
            }
        }
    };
}

__store_steps!(yielding_store);
