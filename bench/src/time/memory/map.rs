//! The limit: a sharded hash map that claims and completes, and does nothing else.

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, hash_map::Entry};
use parking_lot::Mutex;

use semel_bench::load::{BODY, spread_out};

type MapKey = [u8; 16];
type MapFingerprint = [u8; 32];

struct MapSlot {
    fingerprint: MapFingerprint,
    _claimed_at: u64,
    body: Option<Arc<[u8]>>,
}

/// 128 locked maps.
pub(super) struct PlainMap(Vec<Mutex<HashMap<MapKey, MapSlot, DefaultHashBuilder>>>);

impl Default for PlainMap {
    fn default() -> Self {
        Self((0..128).map(|_| Mutex::default()).collect())
    }
}

impl PlainMap {
    pub(super) fn claim_and_complete(&self, i: u64) {
        let (key, fingerprint) = (spread_out::<16>(i), spread_out::<32>(!i));
        match self.shard(&key).lock().entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(MapSlot { fingerprint, _claimed_at: i, body: None });
            }
            Entry::Occupied(_) => panic!("key {i} is not free"),
        }
        let body: Arc<[u8]> = Arc::from(&BODY[..]);
        match self.shard(&key).lock().get_mut(&key) {
            Some(slot) if slot.fingerprint == fingerprint => slot.body = Some(body),
            _ => panic!("key {i} is lost"),
        }
    }

    fn shard(&self, key: &MapKey) -> &Mutex<HashMap<MapKey, MapSlot, DefaultHashBuilder>> {
        &self.0[usize::from(key[0]) / 2]
    }
}
