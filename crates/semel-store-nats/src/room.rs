//! How full the bucket is: new keys are refused while what is claimed can still be completed.
//!
//! An outcome is larger than the claim that it replaces. If claims filled the bucket to its last byte, work
//! that was done could not be recorded.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::api::Info;

/// This part of the bucket is kept for what is claimed already.
const KEPT: i64 = 10;
/// What the server counts for a message besides its value, about: its subject and its headers.
const BESIDES: usize = 256;

/// What new keys may still take.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: AtomicI64,
    messages: AtomicI64,
}

impl Room {
    /// Before it is told anything, there is no bound.
    pub(crate) const fn new() -> Self {
        Self { bytes: AtomicI64::new(i64::MAX), messages: AtomicI64::new(i64::MAX) }
    }

    /// The leader says how full it is.
    pub(crate) fn tell(&self, Info { config, state, .. }: &Info) {
        self.bytes.store(left(config.max_bytes, state.bytes), Relaxed);
        self.messages.store(left(config.max_msgs, state.messages), Relaxed);
    }

    /// A key was written that was not there. The leader is asked too seldom for a small bucket.
    pub(crate) fn took(&self, value: &[u8]) {
        let bytes = value.len() + BESIDES;
        self.bytes.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Relaxed);
        self.messages.fetch_sub(1, Relaxed);
    }

    /// True when what is left is kept for what is claimed already.
    pub(crate) fn is_scarce(&self) -> bool {
        self.bytes.load(Relaxed) <= 0 || self.messages.load(Relaxed) <= 0
    }
}

/// What new keys may still take of a limit; zero and less are none.
fn left(limit: i64, used: u64) -> i64 {
    match limit {
        1.. => (limit - limit / KEPT).saturating_sub_unsigned(used),
        _ => i64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(max_bytes: i64, bytes: u64, messages: u64) -> Room {
        let config = json!({ "max_bytes": max_bytes, "max_msgs": 100 });
        let info = json!({ "config": config, "state": { "bytes": bytes, "messages": messages } });
        let room = Room::new();
        room.tell(&serde_json::from_value(info).unwrap());
        room
    }

    #[test]
    fn new_keys_leave_a_tenth() {
        for (room, is_scarce) in [
            (Room::new(), false),
            (told(1000, 899, 1), false),
            (told(1000, 900, 1), true),
            (told(1000, u64::MAX, 1), true),
            (told(1000, 1, 90), true),
            (told(-1, u64::MAX, 1), false),
            (told(0, u64::MAX, 1), false),
        ] {
            assert_eq!(room.is_scarce(), is_scarce, "{room:?}");
        }
    }

    #[test]
    fn what_was_written_since_counts() {
        let room = told(1000, 500, 1);
        room.took(b"value");
        assert!(!room.is_scarce());
        room.took(b"value");
        assert!(room.is_scarce());
    }
}
