//! The offsets of one partition, from one assignment to its end: which records are done, and which offset may be
//! committed.
//!
//! The offset to commit is the one after the last record up to which everything that was fetched is done. Offsets between two
//! fetched records do not matter: a compacted topic has gaps, and transactions leave markers. Nothing else ever moves
//! it, so a committed offset never passes a record that is not done.

use std::collections::VecDeque;

/// Records that were fetched, from the committed offset on, in order.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    open: VecDeque<OpenRecord>,
    /// How many records at the front are done.
    done_at_front: usize,
    /// The last offset that the driver has taken to commit.
    stored: Option<i64>,
    /// All records that were fetched.
    fetched: usize,
    /// The last commit is made: what is done later is not part of it.
    is_closed: bool,
}

#[derive(Debug)]
struct OpenRecord {
    offset: i64,
    state: RecordState,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    /// In the source: not handed over yet, or given back.
    InSource,
    /// Handed over, and not settled.
    HandedOver,
    Done,
}

impl Offsets {
    /// A record was fetched. False if its offset is not after all earlier ones: the log was cut off or made again, and
    /// the offsets of this assignment mean nothing any more.
    #[must_use]
    pub(crate) fn fetch(&mut self, offset: i64) -> bool {
        if self.last().is_some_and(|last| offset <= last) {
            return false;
        }
        self.open.push_back(OpenRecord { offset, state: RecordState::InSource });
        self.fetched += 1;
        true
    }

    /// The last offset that was fetched or stored.
    fn last(&self) -> Option<i64> {
        let stored = self.stored.map(|next| next - 1);
        self.open.back().map(|record| record.offset).or(stored)
    }

    /// A record was handed over.
    pub(crate) fn hand_over(&mut self, offset: i64) {
        self.set(offset, RecordState::HandedOver);
    }

    /// A record was given back.
    pub(crate) fn give_back(&mut self, offset: i64) {
        self.set(offset, RecordState::InSource);
    }

    /// A record is done. It stays done. False if it is too late for that.
    #[must_use]
    pub(crate) fn finish(&mut self, offset: i64) -> bool {
        if self.is_closed {
            return false;
        }
        self.set(offset, RecordState::Done);
        while self.open.get(self.done_at_front).is_some_and(|it| it.state == RecordState::Done) {
            self.done_at_front += 1;
        }
        true
    }

    /// No record is done from now on: the last commit is about to be made.
    pub(crate) const fn close(&mut self) {
        self.is_closed = true;
    }

    fn set(&mut self, offset: i64, state: RecordState) {
        let found = self.open.binary_search_by_key(&offset, |record| record.offset);
        // A record that is not here is committed.
        if let Ok(at) = found
            && self.open[at].state != RecordState::Done
        {
            self.open[at].state = state;
        }
    }

    /// The offset to commit, if it has moved since the last one that was stored.
    pub(crate) fn next_to_store(&self) -> Option<i64> {
        let last_done = self.done_at_front.checked_sub(1)?;
        let next = self.open[last_done].offset + 1;
        self.stored.is_none_or(|stored| stored < next).then_some(next)
    }

    /// The driver has taken `next` to commit. Not earlier: a commit that begins in between does not contain it.
    pub(crate) const fn set_stored(&mut self, next: i64) {
        self.stored = Some(next);
    }

    /// The last offset that the driver has taken.
    pub(crate) const fn stored(&self) -> Option<i64> {
        self.stored
    }

    /// The broker has committed `next`.
    pub(crate) fn confirm_commit(&mut self, next: i64) {
        while self.done_at_front > 0 && self.open[0].offset < next {
            self.open.pop_front();
            self.done_at_front -= 1;
        }
    }

    /// Records from the committed offset on.
    pub(crate) fn uncommitted(&self) -> usize {
        self.open.len()
    }

    /// True if there is more to commit than the broker has confirmed.
    pub(crate) const fn has_uncommitted_progress(&self) -> bool {
        self.done_at_front > 0
    }

    /// Records that are handed over and not settled.
    pub(crate) fn handed_over(&self) -> usize {
        self.open.iter().filter(|record| record.state == RecordState::HandedOver).count()
    }

    /// All records that were fetched.
    pub(crate) const fn fetched(&self) -> usize {
        self.fetched
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn fetched(offsets: impl IntoIterator<Item = i64>) -> Offsets {
        let mut all = Offsets::default();
        for offset in offsets {
            assert!(all.fetch(offset));
        }
        all
    }

    /// Stores the offset to commit, if it has moved.
    fn store(offsets: &mut Offsets) -> Option<i64> {
        let next = offsets.next_to_store()?;
        offsets.set_stored(next);
        Some(next)
    }

    #[test]
    fn an_offset_that_the_driver_did_not_take_is_stored_again() {
        let mut offsets = fetched([1]);
        assert!(offsets.finish(1));
        assert_eq!((offsets.next_to_store(), offsets.stored()), (Some(2), None));
        assert_eq!(store(&mut offsets), Some(2));
        assert_eq!((offsets.next_to_store(), offsets.stored()), (None, Some(2)));
    }

    #[test]
    fn the_offset_to_commit_waits_for_the_first_record_that_is_not_done() {
        let mut offsets = fetched([3, 4, 7, 8]);
        assert_eq!(store(&mut offsets), None, "nothing is done");
        assert!(offsets.finish(4));
        assert!(offsets.finish(8));
        assert_eq!(store(&mut offsets), None, "3 is not done");
        assert!(offsets.finish(3));
        assert_eq!(store(&mut offsets), Some(5));
        assert_eq!(store(&mut offsets), None, "it has not moved");
        assert!(offsets.finish(7));
        assert_eq!(store(&mut offsets), Some(9), "5 and 6 never existed");
    }

    #[test]
    fn only_a_confirmed_commit_frees_the_window() {
        let mut offsets = fetched([1, 2, 3]);
        assert!(offsets.finish(1));
        assert!(offsets.finish(2));
        assert_eq!(store(&mut offsets), Some(3));
        assert_eq!(offsets.uncommitted(), 3);
        offsets.confirm_commit(2);
        assert_eq!(offsets.uncommitted(), 2, "an earlier commit was confirmed");
        offsets.confirm_commit(3);
        assert_eq!((offsets.uncommitted(), offsets.has_uncommitted_progress()), (1, false));
        assert!(offsets.finish(1));
        assert_eq!(store(&mut offsets), None, "a committed record is done already");
    }

    #[test]
    fn an_offset_that_was_fetched_before_is_refused() {
        let mut offsets = fetched([5, 6]);
        assert!(!offsets.fetch(6) && !offsets.fetch(2));
        assert!(offsets.finish(5));
        assert!(offsets.finish(6));
        assert_eq!(store(&mut offsets), Some(7));
        offsets.confirm_commit(7);
        assert!(!offsets.fetch(6) && offsets.fetch(7));
    }

    #[test]
    fn a_record_that_is_given_back_is_not_handed_over() {
        let mut offsets = fetched([1, 2]);
        offsets.hand_over(1);
        offsets.hand_over(2);
        assert_eq!(offsets.handed_over(), 2);
        offsets.give_back(1);
        assert!(offsets.finish(2));
        assert_eq!(offsets.handed_over(), 0);
        offsets.give_back(2);
        assert!(offsets.finish(1));
        assert_eq!(store(&mut offsets), Some(3), "what is done stays done");
    }

    #[test]
    fn what_is_done_after_the_last_commit_is_refused() {
        let mut offsets = fetched([1, 2]);
        assert!(offsets.finish(1));
        offsets.close();
        assert!(!offsets.finish(2), "the next owner gets it");
        assert_eq!(store(&mut offsets), Some(2), "what was done is committed");
    }

    /// What happens to a partition, in any order.
    #[derive(Clone, Debug)]
    enum Change {
        /// A record with a gap of so many offsets before it.
        Fetch(i64),
        /// One of the records that were fetched.
        Finish(prop::sample::Index),
        Store,
        Commit,
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (1..4_i64).prop_map(Change::Fetch),
            any::<prop::sample::Index>().prop_map(Change::Finish),
            Just(Change::Store),
            Just(Change::Commit),
        ]
    }

    proptest! {
        #[test]
        fn a_stored_offset_never_passes_a_record_that_is_not_done(changes in vec(change(), 1..200)) {
            let mut offsets = Offsets::default();
            let (mut next, mut records) = (0, Vec::new());
            let (mut stored, mut committed) = (0, 0);
            for change in changes {
                match change {
                    Change::Fetch(gap) => {
                        next += gap;
                        prop_assert!(offsets.fetch(next));
                        records.push((next, false));
                    }
                    Change::Finish(_) if records.is_empty() => {}
                    Change::Finish(which) => {
                        let at = which.index(records.len());
                        records[at].1 = true;
                        prop_assert!(offsets.finish(records[at].0));
                    }
                    Change::Store => {
                        if let Some(next) = store(&mut offsets) {
                            prop_assert!(next > stored, "it moves forwards only");
                            stored = next;
                        }
                        let all_done = |next: i64| {
                            records.iter().all(|(offset, is_done)| *offset >= next || *is_done)
                        };
                        prop_assert!(all_done(stored));
                        let first_open = records.iter().find(|(_, is_done)| !is_done);
                        let last_done = records.iter().rev().find(|(offset, _)| {
                            first_open.is_none_or(|(open, _)| offset < open)
                        });
                        let wanted = last_done.map_or(0, |(offset, _)| offset + 1);
                        prop_assert_eq!(stored, wanted, "it is as far as it may be");
                    }
                    Change::Commit => {
                        offsets.confirm_commit(stored);
                        committed = stored;
                    }
                }
                let uncommitted = records.iter().filter(|(offset, _)| *offset >= committed).count();
                prop_assert_eq!(offsets.uncommitted(), uncommitted);
            }
        }
    }
}
