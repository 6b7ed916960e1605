//! Concurrent callers of a store, each with one call at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use semel_bench::load::{BODY, request, spread_out};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, KeyHash, LabelPolicy, Lease, Outcome, Store,
};
use tokio::task::JoinSet;

/// What each caller repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Claims a new key.
    Claims,
    /// Claims a new key and records a 300-byte outcome: two calls.
    Cycles,
    /// Claims a completed key, which is replayed.
    Replays,
}

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteLoad {
    pub(crate) callers: usize,
    pub(crate) time: Duration,
    pub(crate) shape: Shape,
}

impl RemoteLoad {
    /// Calls per second. A cycle is two calls.
    pub(crate) async fn run(self, store: &(impl Store + Clone)) -> Result<f64> {
        // Every run has new keys.
        let next = Arc::new(AtomicU64::new(rand::random::<u64>() >> 1));
        let done = claim(next.fetch_add(1, Relaxed));
        if self.shape == Shape::Replays {
            cycle(store, &done).await?;
        }
        let started = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..self.callers {
            let (store, next, done) = (store.clone(), next.clone(), done.clone());
            callers.spawn(async move {
                let mut calls = 0u64;
                while started.elapsed() < self.time {
                    match self.shape {
                        Shape::Claims => {
                            granted(&store, &claim(next.fetch_add(1, Relaxed))).await?;
                            calls += 1;
                        }
                        Shape::Cycles => {
                            cycle(&store, &claim(next.fetch_add(1, Relaxed))).await?;
                            calls += 2;
                        }
                        Shape::Replays => {
                            replayed(&store, &done).await?;
                            calls += 1;
                        }
                    }
                }
                anyhow::Ok(calls)
            });
        }
        let mut calls = 0;
        while let Some(done) = callers.join_next().await {
            calls += done??;
        }
        Ok(calls as f64 / started.elapsed().as_secs_f64())
    }
}

/// Without labels, as with redaction: the raw side writes none either.
pub(crate) fn claim(i: u64) -> ClaimRequest {
    let key = KeyHash::from_bytes(spread_out::<32>(i));
    ClaimRequest { key, ..request(i, LabelPolicy::Redact) }
}

pub(crate) async fn granted(store: &impl Store, request: &ClaimRequest) -> Result<Lease> {
    match store.claim(request).await? {
        Claim::Granted(lease) => Ok(lease),
        answer => bail!("a new key was answered {answer:?}"),
    }
}

pub(crate) async fn cycle(store: &impl Store, request: &ClaimRequest) -> Result<()> {
    let owner = granted(store, request).await?.owner;
    let outcome = Arc::new(Outcome::success(BODY.to_vec()));
    store.complete(&CompleteRequest { owner, outcome }).await?;
    Ok(())
}

pub(crate) async fn replayed(store: &impl Store, request: &ClaimRequest) -> Result<()> {
    match store.claim(request).await? {
        Claim::Replay(_) => Ok(()),
        answer => bail!("a completed key was answered {answer:?}"),
    }
}
