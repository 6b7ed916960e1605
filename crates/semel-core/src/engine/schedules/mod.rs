//! The engine's promises under many schedules: its own code, on shuttle's primitives.

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
        time::{StoreClock, sleep},
        yield_now,
    },
};

const LEASE: Duration = Duration::from_secs(30);

/// Shorter than a lease: who is answered within it did not wait for a lease to run out.
const WAIT: Duration = Duration::from_secs(10);

fn policy() -> Policy {
    Policy::api().lease(LEASE).wait(WAIT).backoff(Duration::from_millis(10))
}

fn engine(store: &Remote) -> Engine {
    Engine::builder().store(store.clone()).policy(policy()).build().expect("a valid policy")
}

fn key() -> Key {
    Scope::new("test", Principal::from("tester"), "work").key("a").expect("a valid key")
}

fn asked() -> Fingerprint {
    Fingerprint::of_bytes(b"x")
}

/// A store on the virtual clock. A step is atomic; before and after it anything may happen.
#[derive(Clone, Debug)]
struct Remote {
    records: MemoryStore,
    slow: Option<(&'static str, Duration)>,
    feed: Option<ChangeFeed>,
    calls: Arc<Mutex<Vec<(&'static str, Instant)>>>,
}

impl Remote {
    fn new() -> Self {
        let records = MemoryStore::builder().clock(StoreClock).build().expect("valid bounds");
        Self { records, slow: None, feed: None, calls: Arc::default() }
    }

    /// One step takes this long; `Duration::MAX` is for ever.
    fn slow(self, step: &'static str, takes: Duration) -> Self {
        Self { slow: Some((step, takes)), ..self }
    }

    /// When `step` was asked for.
    fn calls(&self, step: &str) -> Vec<Instant> {
        let calls = self.calls.lock();
        calls.iter().filter(|(name, _)| *name == step).map(|(_, at)| *at).collect()
    }

    /// Other processes hear of a completion, once it is one.
    fn done(&self, step: &'static str) {
        if let Some(feed) = self.feed.as_ref().filter(|_| step == "complete") {
            self.calls.lock().push(("completed", Instant::now()));
            feed.notify_all();
        }
    }

    async fn arrive(&self, step: &'static str) {
        self.calls.lock().push((step, Instant::now()));
        trip().await;
        match self.slow {
            Some((name, Duration::MAX)) if name == step => std::future::pending().await,
            Some((name, takes)) if name == step => sleep(takes).await,
            Some(_) | None => {}
        }
    }
}

/// Half of all calls, and of all work, end at their first poll.
async fn trip() {
    if thread_rng().gen_bool(0.5) {
        yield_now().await;
    }
}

macro_rules! remote {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Remote {
            fn info(&self) -> StoreInfo {
                StoreInfo { change_feed: self.feed.clone(), ..self.records.info() }
            }
            $(async fn $step(&self, request: $request) -> $answer {
                self.arrive(stringify!($step)).await;
                let answer = self.records.$step(request).await;
                self.done(stringify!($step));
                trip().await;
                answer
            })*
            async fn stats(&self) -> Result<Stats> {
                self.records.stats().await
            }
        }
    };
}

__store_steps!(remote);
