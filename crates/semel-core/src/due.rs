//! A queue of records by the time at which a purge has to check them.
//!
//! Most records of a store have one retention, so their times come in order: those are in a plain queue. Only times
//! that come out of order are in a heap.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use crate::Timestamp;

/// A time and the hash of the key that is due then.
type DueEntry = (Timestamp, u64);

/// Times and hashes of records' keys, earliest time first.
#[derive(Debug, Default)]
pub struct DueQueue {
    in_order: VecDeque<DueEntry>,
    out_of_order: BinaryHeap<Reverse<DueEntry>>,
}

impl DueQueue {
    /// Adds `hash` at the time `at`.
    pub fn push(&mut self, at: Timestamp, hash: u64) {
        if self.in_order.back().is_none_or(|(last, _)| *last <= at) {
            self.in_order.push_back((at, hash));
        } else {
            self.out_of_order.push(Reverse((at, hash)));
        }
    }

    /// The number of entries, including outdated ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.in_order.len() + self.out_of_order.len()
    }

    /// True when there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the earliest entry.
    pub fn pop(&mut self) -> Option<DueEntry> {
        match (self.in_order.front(), self.out_of_order.peek()) {
            (Some((at, _)), Some(Reverse((stray, _)))) if stray < at => self.pop_out_of_order(),
            (None, _) => self.pop_out_of_order(),
            (Some(_), _) => self.in_order.pop_front(),
        }
    }

    /// Removes the earliest entry, unless it is after `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<DueEntry> {
        let first = self.in_order.front().map(|(at, _)| *at);
        let stray = self.out_of_order.peek().map(|Reverse((at, _))| *at);
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if is_due(first) || is_due(stray) { self.pop() } else { None }
    }

    fn pop_out_of_order(&mut self) -> Option<DueEntry> {
        self.out_of_order.pop().map(|Reverse(due)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_whatever_the_order_of_pushing() {
        let mut queue = DueQueue::default();
        for at in [5, 7, 3, 7, 1, 9, 8] {
            queue.push(Timestamp::from_millis(at), at);
        }
        assert_eq!(queue.pop_due(Timestamp::from_millis(0)), None);
        let popped: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|(_, hash)| hash).collect();
        assert_eq!(popped, [1, 3, 5, 7, 7, 8, 9]);
    }
}
