//! A bound on all bodies that are held in memory at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that may be held. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    held: AtomicUsize,
    limit: usize,
}

/// Bytes held; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Pool { held: AtomicUsize::new(0), limit }))
    }

    pub(crate) fn permit(&self) -> Permit {
        Permit { budget: self.clone(), bytes: 0 }
    }
}

impl Permit {
    /// Holds `bytes` more, or changes nothing.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let pool = &*self.budget.0;
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= pool.limit);
        let granted = pool.held.fetch_update(Relaxed, Relaxed, more).is_ok();
        if granted {
            self.bytes += bytes;
        }
        granted
    }
}

impl Permit {
    /// Holds nothing any more.
    pub(crate) fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.budget.0.held.fetch_sub(bytes, Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_never_exceeds_the_limit_and_comes_back() {
        let budget = Budget::new(10);
        let (mut one, mut two) = (budget.permit(), budget.permit());
        assert!(one.grow(6) && two.grow(4));
        assert!(!two.grow(1) && !one.grow(usize::MAX));
        drop(one);
        assert!(two.grow(6));
        drop(two);
        assert_eq!(budget.0.held.load(Relaxed), 0);
    }
}
