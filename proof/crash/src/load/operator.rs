//! An operator that forgets keys, and erases some, while clients use them.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use semel_core::Store;
use tokio::time::sleep;

use super::WorkerShared;
use crate::key::KeyId;

const REASON: &str = "a chaos run";

/// Runs until the load ends. The recording store writes its calls to the history.
pub(super) async fn operate(shared: Arc<WorkerShared>, mut rng: StdRng) {
    let job = &shared.job;
    let keys = (job.first_key..job.first_key + job.keys).map(KeyId);
    let keys: Vec<KeyId> = keys.filter(|key| key.is_operated()).collect();
    if keys.is_empty() || job.clients == 0 {
        return;
    }
    loop {
        sleep(Duration::from_millis(rng.random_range(5..25))).await;
        // In a shared store one process is elected to purge, and no worker lives long: purge here too.
        if rng.random_bool(0.1) {
            let _reply = shared.store.purge(100).await;
        }
        let key = keys[rng.random_range(0..keys.len())];
        let engine = &shared.engines[0];
        let name = key.to_key(&job.namespace).expect("a valid key");
        let hash = engine.key_hash(&name);
        // The recording store writes errors to the history.
        if rng.random_bool(0.15) {
            let _reply = engine.erase(&hash, REASON).await;
        } else {
            let _reply = engine.forget(&hash, REASON).await;
        }
    }
}
