//! The capacity of the bucket: new keys are refused while claimed keys can still be completed.
//!
//! An outcome is larger than the claim that it replaces. If claims filled the bucket completely, the outcomes
//! of finished work could not be recorded.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::jetstream_api::StreamInfo;

/// One part in so many is reserved for keys that are claimed already.
const RESERVED: i64 = 10;
/// About what the server counts for subject and headers of a message.
const MESSAGE_OVERHEAD: usize = 256;

/// The capacity for new keys.
#[derive(Debug)]
pub(crate) struct BucketCapacity {
    bytes: CapacityLimit,
    messages: CapacityLimit,
}

/// What this process has used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapacityUsed {
    bytes: i64,
    messages: i64,
}

impl BucketCapacity {
    /// Unlimited, until the leader has reported its limits.
    pub(crate) const fn new() -> Self {
        Self { bytes: CapacityLimit::new(), messages: CapacityLimit::new() }
    }

    pub(crate) fn used(&self) -> CapacityUsed {
        CapacityUsed { bytes: self.bytes.used(), messages: self.messages.used() }
    }

    /// Sets the limits from the leader's report. `used` is what this process had used when the report was requested.
    pub(crate) fn set(&self, StreamInfo { config, state, .. }: &StreamInfo, used: CapacityUsed) {
        self.bytes.set(left(config.max_bytes, state.bytes), used.bytes);
        self.messages.set(left(config.max_msgs, state.messages), used.messages);
    }

    /// Counts a new key. The leader's reports are too far apart for a small bucket.
    pub(crate) fn add(&self, value: &[u8]) {
        self.bytes.add(i64::try_from(value.len() + MESSAGE_OVERHEAD).unwrap_or(i64::MAX));
        self.messages.add(1);
    }

    /// True when the rest is reserved for keys that are claimed already.
    pub(crate) fn is_scarce(&self) -> bool {
        self.bytes.is_reached() || self.messages.is_reached()
    }
}

#[derive(Debug)]
struct CapacityLimit {
    /// What this process may use in total.
    limit: AtomicI64,
    used: AtomicI64,
}

impl CapacityLimit {
    const fn new() -> Self {
        Self { limit: AtomicI64::new(i64::MAX), used: AtomicI64::new(0) }
    }

    fn used(&self) -> i64 {
        self.used.load(Relaxed)
    }

    fn add(&self, count: i64) {
        self.used.fetch_add(count, Relaxed);
    }

    fn set(&self, left: i64, used: i64) {
        self.limit.store(left.saturating_add(used), Relaxed);
    }

    fn is_reached(&self) -> bool {
        self.used() >= self.limit.load(Relaxed)
    }
}

/// What is left for new keys; a limit of zero or less means no limit.
fn left(limit: i64, used: u64) -> i64 {
    match limit {
        1.. => (limit - limit / RESERVED).saturating_sub_unsigned(used),
        _ => i64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(max_bytes: i64, bytes: u64, messages: u64) -> StreamInfo {
        let config = json!({ "max_bytes": max_bytes, "max_msgs": 100 });
        let info = json!({ "config": config, "state": { "bytes": bytes, "messages": messages } });
        serde_json::from_value(info).expect("a stream info")
    }

    fn bucket(max_bytes: i64, bytes: u64, messages: u64) -> BucketCapacity {
        let capacity = BucketCapacity::new();
        capacity.set(&info(max_bytes, bytes, messages), capacity.used());
        capacity
    }

    #[test]
    fn new_keys_leave_a_tenth_of_the_bucket() {
        for (capacity, is_scarce) in [
            (BucketCapacity::new(), false),
            (bucket(1000, 899, 1), false),
            (bucket(1000, 900, 1), true),
            (bucket(1000, u64::MAX, 1), true),
            (bucket(1000, 1, 90), true),
            (bucket(-1, u64::MAX, 1), false),
            (bucket(0, u64::MAX, 1), false),
        ] {
            assert_eq!(capacity.is_scarce(), is_scarce, "{capacity:?}");
        }
    }

    #[test]
    fn writes_since_the_request_for_the_report_count() {
        let capacity = bucket(1000, 500, 1);
        capacity.add(b"value");
        assert!(!capacity.is_scarce());
        let used = capacity.used();
        capacity.add(b"value");
        assert!(capacity.is_scarce());
        capacity.set(&info(1000, 761, 2), used);
        assert!(capacity.is_scarce(), "the report may not contain the second write");
        capacity.set(&info(1000, 1, 2), capacity.used());
        assert!(!capacity.is_scarce());
    }
}
