//! A bound on all bodies that are held in memory at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;

/// What is not worth counting on its way out, and what every answer has room for.
pub(crate) const SMALL: usize = 4 * 1024;

/// Bytes that may be held. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct BufferBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    held: AtomicUsize,
    limit: usize,
}

/// Bytes held; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: BufferBudget,
    bytes: usize,
    /// HeldBytes already, for bytes to come.
    spare: usize,
}

impl BufferBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(BudgetState { held: AtomicUsize::new(0), limit }))
    }

    pub(crate) fn permit(&self) -> Permit {
        Permit { budget: self.clone(), bytes: 0, spare: 0 }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.0.held.load(Relaxed)
    }
}

impl Permit {
    /// Holds `bytes` more, or changes nothing.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let granted = self.reserve(bytes.saturating_sub(self.spare));
        if granted {
            self.spare -= bytes;
            self.bytes += bytes;
        }
        granted
    }

    /// Holds room for `bytes` more, or changes nothing.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let pool = &*self.budget.0;
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= pool.limit);
        let granted = bytes == 0 || pool.held.fetch_update(Relaxed, Relaxed, more).is_ok();
        if granted {
            self.spare += bytes;
        }
        granted
    }

    /// Gives back what is more than `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        let freed = less + std::mem::take(&mut self.spare);
        if freed > 0 {
            self.budget.0.held.fetch_sub(freed, Relaxed);
        }
    }

    /// The same bytes, held until the last of them is dropped. A server takes a body out of our hands
    /// whole, and keeps it for as long as its client does not read.
    pub(crate) fn bound_to(self, bytes: Bytes) -> Bytes {
        if bytes.len() <= SMALL {
            return bytes;
        }
        Bytes::from_owner(HeldBytes { bytes, _permit: self })
    }
}

struct HeldBytes {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_never_exceeds_the_limit_and_comes_back() {
        let budget = BufferBudget::new(10);
        let (mut one, mut two) = (budget.permit(), budget.permit());
        assert!(one.grow(6) && two.grow(4));
        assert!(!two.grow(1) && !one.grow(usize::MAX));
        drop(one);
        assert!(two.grow(6));
        drop(two);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn room_that_was_reserved_is_there_when_nothing_else_is() {
        let budget = BufferBudget::new(10);
        let (mut one, mut two) = (budget.permit(), budget.permit());
        assert!(one.reserve(4) && two.grow(6));
        assert!(!two.grow(1) && one.grow(3) && !one.grow(2) && one.grow(1));
        assert_eq!(budget.held(), 10);
        one.shrink_to(2);
        assert_eq!(budget.held(), 8);
        drop((one, two));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn bytes_that_went_elsewhere_are_held_until_the_last_of_them_is_gone() {
        let (budget, answer) = (BufferBudget::new(4 * SMALL), vec![7; 2 * SMALL]);
        let mut permit = budget.permit();
        assert!(permit.grow(answer.len() + 2));
        permit.shrink_to(answer.len());
        let mut bytes = permit.bound_to(answer.into());
        let sent = bytes.split_to(3);
        drop(bytes);
        assert_eq!(budget.held(), 2 * SMALL);
        drop(sent);
        assert_eq!(budget.held(), 0);
    }
}
