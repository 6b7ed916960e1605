//! Cleanup: purges expired records now and then, and sets the gauges of the store's size. Of the processes that share a
//! store, one does it for all.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;

use super::EngineInner;
use crate::{
    Result, Stats, background,
    sync::{random_range, time::sleep, yield_now},
    telemetry,
};

/// Records purged before the task yields.
const CHUNK: usize = 10_000;

/// Starts the task. It ends with the engine.
pub(super) fn start(inner: &Arc<EngineInner>, every: Duration) {
    background::handle().spawn(clean_up(Arc::downgrade(inner), every));
}

async fn clean_up(engine: Weak<EngineInner>, every: Duration) {
    loop {
        // With jitter, so that processes that started together do not clean up together.
        sleep(every.mul_f64(random_range(0.75..1.25))).await;
        let Some(inner) = engine.upgrade() else { return };
        match AssertUnwindSafe(clean_up_as_leader(&inner, every)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cleanup failed, will try again: {error}"),
            Err(_) => tracing::error!("cleanup panicked, will try again"),
        }
    }
}

/// Cleans up if no other process does. The process that does it stays the leader, since its term outlasts the longest
/// pause.
async fn clean_up_as_leader(inner: &EngineInner, every: Duration) -> Result<()> {
    // Before each chunk: a long purge must not outlast its term.
    while leads(inner, every * 2).await? {
        if purge(inner).await? < CHUNK {
            telemetry::stats(&inner.store.stats().await?);
            return Ok(());
        }
        yield_now().await;
    }
    // Another process sets the gauges. Without this reset, the gauges that this process set as the leader would stay.
    telemetry::stats(&Stats::default());
    Ok(())
}

async fn leads(inner: &EngineInner, term: Duration) -> Result<bool> {
    let leads = inner.store.lead(term).await;
    telemetry::leads_cleanup(leads.as_ref().is_ok_and(|leads| *leads));
    leads
}

async fn purge(inner: &EngineInner) -> Result<usize> {
    let purged = inner.store.purge(CHUNK).await?;
    telemetry::purged(purged.deleted);
    telemetry::held(purged.held);
    Ok(purged.count())
}
