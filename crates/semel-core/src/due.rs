//! What to look at when, earliest first.
//!
//! Most records of a store have one retention, so their times come in order: those are a plain run,
//! pushed at one end and popped at the other. Only the strays pay for a heap.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use crate::Timestamp;

/// A time and the hash of what is due then.
type Due = (Timestamp, u64);

/// What to look at when, earliest first: a time and a hash of the record's key.
#[derive(Debug, Default)]
pub struct DueQueue {
    run: VecDeque<Due>,
    strays: BinaryHeap<Reverse<Due>>,
}

impl DueQueue {
    /// Puts `hash` down for `at`.
    pub fn push(&mut self, at: Timestamp, hash: u64) {
        if self.run.back().is_none_or(|(last, _)| *last <= at) {
            self.run.push_back((at, hash));
        } else {
            self.strays.push(Reverse((at, hash)));
        }
    }

    /// Entries in it, outdated ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.run.len() + self.strays.len()
    }

    /// True when nothing is put down.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the earliest.
    pub fn pop(&mut self) -> Option<Due> {
        match (self.run.front(), self.strays.peek()) {
            (Some((at, _)), Some(Reverse((stray, _)))) if stray < at => self.pop_stray(),
            (None, _) => self.pop_stray(),
            (Some(_), _) => self.run.pop_front(),
        }
    }

    /// Takes the earliest, unless it is after `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<Due> {
        let first = self.run.front().map(|(at, _)| *at);
        let stray = self.strays.peek().map(|Reverse((at, _))| *at);
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if is_due(first) || is_due(stray) { self.pop() } else { None }
    }

    fn pop_stray(&mut self) -> Option<Due> {
        self.strays.pop().map(|Reverse(due)| due)
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
