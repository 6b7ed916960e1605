//! How full the bucket is: new keys are refused while what is claimed can still be completed.
//!
//! An outcome is larger than the claim that it replaces. If claims filled the bucket to its last byte, work
//! that was done could not be recorded.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::jetstream_api::Info;

/// This part of the bucket is kept for what is claimed already.
const KEPT: i64 = 10;
/// What the server counts for a message besides its value, about: its subject and its headers.
const BESIDES: usize = 256;

/// What new keys may still take.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: Limit,
    messages: Limit,
}

/// What this process has taken by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    bytes: i64,
    messages: i64,
}

impl Room {
    /// Before it is told anything, there is no bound.
    pub(crate) const fn new() -> Self {
        Self { bytes: Limit::new(), messages: Limit::new() }
    }

    pub(crate) fn taken(&self) -> Taken {
        Taken { bytes: self.bytes.taken(), messages: self.messages.taken() }
    }

    /// The leader says how full it is. It was asked when this process had taken so much.
    pub(crate) fn tell(&self, Info { config, state, .. }: &Info, taken: Taken) {
        self.bytes.tell(left(config.max_bytes, state.bytes), taken.bytes);
        self.messages.tell(left(config.max_msgs, state.messages), taken.messages);
    }

    /// A key was written that was not there. The leader is asked too seldom for a small bucket.
    pub(crate) fn took(&self, value: &[u8]) {
        self.bytes.took(i64::try_from(value.len() + BESIDES).unwrap_or(i64::MAX));
        self.messages.took(1);
    }

    /// True when what is left is kept for what is claimed already.
    pub(crate) fn is_scarce(&self) -> bool {
        self.bytes.is_reached() || self.messages.is_reached()
    }
}

#[derive(Debug)]
struct Limit {
    /// What this process may have taken when it is reached.
    most: AtomicI64,
    taken: AtomicI64,
}

impl Limit {
    const fn new() -> Self {
        Self { most: AtomicI64::new(i64::MAX), taken: AtomicI64::new(0) }
    }

    fn taken(&self) -> i64 {
        self.taken.load(Relaxed)
    }

    fn took(&self, count: i64) {
        self.taken.fetch_add(count, Relaxed);
    }

    fn tell(&self, left: i64, taken: i64) {
        self.most.store(left.saturating_add(taken), Relaxed);
    }

    fn is_reached(&self) -> bool {
        self.taken() >= self.most.load(Relaxed)
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

    fn info(max_bytes: i64, bytes: u64, messages: u64) -> Info {
        let config = json!({ "max_bytes": max_bytes, "max_msgs": 100 });
        let info = json!({ "config": config, "state": { "bytes": bytes, "messages": messages } });
        serde_json::from_value(info).expect("it is one")
    }

    fn told(max_bytes: i64, bytes: u64, messages: u64) -> Room {
        let room = Room::new();
        room.tell(&info(max_bytes, bytes, messages), room.taken());
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
    fn what_was_written_since_the_leader_was_asked_counts() {
        let room = told(1000, 500, 1);
        room.took(b"value");
        assert!(!room.is_scarce());
        let asked = room.taken();
        room.took(b"value");
        assert!(room.is_scarce());
        room.tell(&info(1000, 761, 2), asked);
        assert!(room.is_scarce(), "the second was on its way");
        room.tell(&info(1000, 1, 2), room.taken());
        assert!(!room.is_scarce());
    }
}
