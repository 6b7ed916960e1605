//! After the storm: every key is asked for until it has come to an end, with work that succeeds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep};

use super::{
    World,
    client::{Ask, call},
    handler::Script,
    names::PAYLOADS,
};
use crate::{event::Answer, key::KeyId};

/// A key that has no end after this long has none; the checker says so.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn all(world: &Arc<World>) {
    let next = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (world, next) = (world.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let offset = next.fetch_add(1, Relaxed);
                if offset >= world.job.keys {
                    return;
                }
                one(&world, KeyId(world.job.first_key + offset)).await;
            }
        });
    }
    tasks.join_all().await;
}

async fn one(world: &Arc<World>, key: KeyId) {
    let deadline = Instant::now() + PATIENCE;
    let (mut payload, mut run) = (0, u64::from(key.0) << 32 | u64::from(world.job.process) << 16);
    while Instant::now() < deadline {
        run += 1;
        let ask = Ask { key, payload, engine: 0, script: Script::success(run) };
        match call(world, ask).await {
            Answer::Done | Answer::Unknown | Answer::Dead | Answer::Gone => return,
            // The key is pinned to another payload.
            Answer::Mismatch => payload = (payload + 1) % PAYLOADS,
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}
