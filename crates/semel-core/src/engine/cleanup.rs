//! Cleanup: purges expired records now and then, and shows how full the store is.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;

use super::{Inner, background};
use crate::{
    Result,
    sync::{time::sleep, yield_now},
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
        sleep(every).await;
        let Some(inner) = engine.upgrade() else { return };
        match AssertUnwindSafe(sweep(&inner)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cleanup failed, will try again: {error}"),
            Err(_) => tracing::error!("cleanup panicked, will try again"),
        }
    }
}

async fn sweep(inner: &Inner) -> Result<()> {
    loop {
        let purged = inner.store.purge(CHUNK).await?;
        if purged.held > 0 {
            tracing::warn!("{} operations lost their owner and need an operator", purged.held);
        }
        if purged.count() < CHUNK {
            break;
        }
        yield_now().await;
    }
    telemetry::stats(&inner.store.stats().await?);
    Ok(())
}
