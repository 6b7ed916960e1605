//! An operator: forgets keys, and erases some, while others use them.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use semel_core::Store;
use tokio::time::sleep;

use super::World;
use crate::key::KeyId;

const REASON: &str = "a storm";

/// Goes on until the load ends. What it asks for, the witness writes down.
pub(super) async fn operate(world: Arc<World>, mut rng: StdRng) {
    let job = &world.job;
    let keys = (job.first_key..job.first_key + job.keys).map(KeyId);
    let keys: Vec<KeyId> = keys.filter(|key| key.is_operated()).collect();
    if keys.is_empty() || job.clients == 0 {
        return;
    }
    loop {
        sleep(Duration::from_millis(rng.random_range(5..25))).await;
        // Cleanup is one process's in a shared store, and none lives long here.
        if rng.random_bool(0.1) {
            let _told = world.witness.purge(100).await;
        }
        let key = keys[rng.random_range(0..keys.len())];
        let engine = &world.engines[0];
        let name = key.to_key(&job.namespace).expect("a valid key");
        let hash = engine.key_hash(&name);
        // An error is written down as one.
        if rng.random_bool(0.15) {
            let _told = engine.erase(&hash, REASON).await;
        } else {
            let _told = engine.forget(&hash, REASON).await;
        }
    }
}
