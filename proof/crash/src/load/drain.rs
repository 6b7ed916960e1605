//! After the faults: calls every key until it has a final state, with work that succeeds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep};

use super::{
    WorkerShared,
    client::{ClientRequest, call},
    handler::RunScript,
    names::PAYLOADS,
};
use crate::{event::ReplyKind, key::KeyId};

/// A key without a final state after this time is left; the checker reports it.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn drain_keys(shared: &Arc<WorkerShared>) {
    let next = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (shared, next) = (shared.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let offset = next.fetch_add(1, Relaxed);
                if offset >= shared.job.keys {
                    return;
                }
                drain_key(&shared, KeyId(shared.job.first_key + offset)).await;
            }
        });
    }
    tasks.join_all().await;
}

async fn drain_key(shared: &Arc<WorkerShared>, key: KeyId) {
    let deadline = Instant::now() + PATIENCE;
    let (mut payload, mut run) = (0, u64::from(key.0) << 32 | u64::from(shared.job.process) << 16);
    while Instant::now() < deadline {
        run += 1;
        let request = ClientRequest { key, payload, engine: 0, script: RunScript::success(run) };
        match call(shared, request).await {
            ReplyKind::Done | ReplyKind::Unknown | ReplyKind::Dead | ReplyKind::Gone => return,
            // The key is pinned to another payload.
            ReplyKind::Mismatch => payload = (payload + 1) % PAYLOADS,
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}
