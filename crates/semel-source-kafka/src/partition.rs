//! One partition, from one assignment to its end. A partition that is revoked and assigned again is another one, so
//! that a late settlement of an earlier assignment changes nothing.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::{config::KafkaSourceBuilder, offsets::Offsets};

/// So many records of an assignment may have been handed over before, to a process that has died since: it cannot have
/// been further ahead of the committed offset than the largest window, and a few records that the driver had buffered.
const MAY_BE_REDELIVERED: usize = KafkaSourceBuilder::MAX_WINDOW + 1_000;

/// One assignment of a partition.
pub(crate) struct Partition {
    topic: Arc<str>,
    number: i32,
    /// `TOPIC/NUMBER`
    name: Arc<str>,
    /// `None` once the partition was revoked.
    offsets: Mutex<Option<Offsets>>,
    is_paused: AtomicBool,
}

/// What the broker knows about earlier deliveries of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstDelivery {
    /// No process was handed this record before.
    Known,
    /// A process that has died may have been handed it.
    Unknown,
}

impl Partition {
    pub(crate) fn new(topic: Arc<str>, number: i32) -> Self {
        let name = format!("{topic}/{number}").into();
        let offsets = Mutex::new(Some(Offsets::default()));
        Self { topic, number, name, offsets, is_paused: AtomicBool::new(false) }
    }

    pub(crate) fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub(crate) const fn number(&self) -> i32 {
        self.number
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A record was fetched. `None` if its offset is not after the earlier ones.
    pub(crate) fn fetch(&self, offset: i64) -> Option<FirstDelivery> {
        let mut offsets = self.offsets.lock();
        let offsets = offsets.as_mut()?;
        let is_known = offsets.fetched() >= MAY_BE_REDELIVERED;
        let first = if is_known { FirstDelivery::Known } else { FirstDelivery::Unknown };
        offsets.fetch(offset).then_some(first)
    }

    /// Notes that a record is handed over. False if the partition was revoked.
    pub(crate) fn hand_over(&self, offset: i64) -> bool {
        self.change(|offsets| offsets.hand_over(offset)).is_some()
    }

    /// Notes that a record was given back. False if the partition was revoked.
    pub(crate) fn give_back(&self, offset: i64) -> bool {
        self.change(|offsets| offsets.give_back(offset)).is_some()
    }

    /// Notes that a record is done. False if the partition was revoked.
    pub(crate) fn finish(&self, offset: i64) -> bool {
        self.change(|offsets| offsets.finish(offset)).unwrap_or_default()
    }

    /// No record is done from now on: the last commit is about to be made.
    pub(crate) fn close(&self) {
        self.change(Offsets::close);
    }

    /// The offset to commit, if it has moved since the last one that was stored.
    pub(crate) fn next_to_store(&self) -> Option<i64> {
        self.change(|offsets| offsets.next_to_store()).flatten()
    }

    /// The driver has taken `next` to commit.
    pub(crate) fn set_stored(&self, next: i64) {
        self.change(|offsets| offsets.set_stored(next));
    }

    /// The last offset that the driver has taken.
    pub(crate) fn stored(&self) -> Option<i64> {
        self.change(|offsets| offsets.stored()).flatten()
    }

    /// The broker has committed `next`.
    pub(crate) fn confirm_commit(&self, next: i64) {
        self.change(|offsets| offsets.confirm_commit(next));
    }

    /// Records from the committed offset on, and whether a commit would change that.
    pub(crate) fn uncommitted(&self) -> (usize, bool) {
        let read = |it: &mut Offsets| (it.uncommitted(), it.has_uncommitted_progress());
        self.change(read).unwrap_or_default()
    }

    /// Records that are handed over and not settled.
    pub(crate) fn handed_over(&self) -> usize {
        self.change(|offsets| offsets.handed_over()).unwrap_or_default()
    }

    /// The partition was revoked, or its offsets mean nothing any more: nothing is committed for it from now on.
    pub(crate) fn end(&self) {
        *self.offsets.lock() = None;
    }

    fn change<T>(&self, change: impl FnOnce(&mut Offsets) -> T) -> Option<T> {
        self.offsets.lock().as_mut().map(change)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Relaxed);
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Partition").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_was_revoked_commits_nothing() {
        let partition = Partition::new("orders".into(), 3);
        assert_eq!(partition.name(), "orders/3");
        partition.fetch(0).unwrap();
        partition.fetch(1).unwrap();
        assert!(partition.hand_over(0) && partition.finish(0));
        assert_eq!(partition.next_to_store(), Some(1));
        partition.end();
        assert!(!partition.finish(1) && !partition.hand_over(1) && !partition.give_back(1));
        assert_eq!((partition.next_to_store(), partition.fetch(2)), (None, None));
    }

    #[test]
    fn records_within_the_largest_window_may_have_been_delivered_before() {
        let partition = Partition::new("orders".into(), 0);
        let first: Vec<_> = (0..20_000).map(|offset| partition.fetch(offset).unwrap()).collect();
        assert_eq!(first[KafkaSourceBuilder::MAX_WINDOW], FirstDelivery::Unknown);
        assert_eq!(first[19_999], FirstDelivery::Known);
    }
}
