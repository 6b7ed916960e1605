//! Cleanup: purges expired records now and then, and shows how full the store is. Of the processes on a
//! shared store, one does it for all.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;

use super::Inner;
use crate::background;
use crate::{
    Result, Stats,
    sync::{random_range, time::sleep, yield_now},
    telemetry,
};

/// Records purged before the store gets a rest.
const CHUNK: usize = 10_000;

/// Starts the task. It ends with the engine.
pub(super) fn start(inner: &Arc<Inner>, every: Duration) {
    background::handle().spawn(clean_up(Arc::downgrade(inner), every));
}

async fn clean_up(engine: Weak<Inner>, every: Duration) {
    loop {
        // Jittered, so that processes that started together do not come together.
        sleep(every.mul_f64(random_range(0.75..1.25))).await;
        let Some(inner) = engine.upgrade() else { return };
        match AssertUnwindSafe(take_turn(&inner, every)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cleanup failed, will try again: {error}"),
            Err(_) => tracing::error!("cleanup panicked, will try again"),
        }
    }
}

/// Cleans up if no other process does. Whoever does stays at it: its term outlasts the longest pause.
async fn take_turn(inner: &Inner, every: Duration) -> Result<()> {
    // Before each chunk: a long sweep must not outlast its term.
    while leads(inner, every * 2).await? {
        if purge(inner).await? < CHUNK {
            telemetry::stats(&inner.store.stats().await?);
            return Ok(());
        }
        yield_now().await;
    }
    // Another process tells. What this one told when it was its turn would stand for ever.
    telemetry::stats(&Stats::default());
    Ok(())
}

async fn leads(inner: &Inner, term: Duration) -> Result<bool> {
    let leads = inner.store.lead(term).await;
    telemetry::leads_cleanup(leads.as_ref().is_ok_and(|leads| *leads));
    leads
}

async fn purge(inner: &Inner) -> Result<usize> {
    let purged = inner.store.purge(CHUNK).await?;
    telemetry::purged(purged.deleted);
    telemetry::held(purged.held);
    Ok(purged.count())
}
