//! A bound on the memory of all bodies that are held at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;

/// The size of a small body. It is not counted while the server sends it, and every answer has capacity for it
/// before its handler runs.
pub(crate) const SMALL_BODY: usize = 4 * 1024;

/// The number of bytes that may be held. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct BufferBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    held: AtomicUsize,
    limit: usize,
}

/// Bytes of the budget that are in use. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: BufferBudget,
    bytes: usize,
    /// Reserved for bytes to come.
    reserved: usize,
}

impl BufferBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(BudgetState { held: AtomicUsize::new(0), limit }))
    }

    pub(crate) fn permit(&self) -> Permit {
        Permit { budget: self.clone(), bytes: 0, reserved: 0 }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.0.held.load(Relaxed)
    }
}

impl Permit {
    /// Takes `bytes` more, or returns false and changes nothing.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let granted = self.reserve(bytes.saturating_sub(self.reserved));
        if granted {
            self.reserved -= bytes;
            self.bytes += bytes;
        }
        granted
    }

    /// Reserves `bytes` more, or returns false and changes nothing.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let pool = &*self.budget.0;
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= pool.limit);
        let granted = bytes == 0 || pool.held.fetch_update(Relaxed, Relaxed, more).is_ok();
        if granted {
            self.reserved += bytes;
        }
        granted
    }

    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        let freed = less + std::mem::take(&mut self.reserved);
        if freed > 0 {
            self.budget.0.held.fetch_sub(freed, Relaxed);
        }
    }

    /// The same bytes, counted until the last of them is dropped. A server takes a body as a whole, and keeps it
    /// until its client has read it.
    pub(crate) fn bound_to(self, bytes: Bytes) -> Bytes {
        if bytes.len() <= SMALL_BODY {
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
    fn permits_never_exceed_the_limit_and_are_given_back() {
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
    fn reserved_bytes_can_be_taken_when_the_budget_is_used_up() {
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
    fn bytes_handed_to_the_server_are_counted_until_the_last_is_dropped() {
        let (budget, answer) = (BufferBudget::new(4 * SMALL_BODY), vec![7; 2 * SMALL_BODY]);
        let mut permit = budget.permit();
        assert!(permit.grow(answer.len() + 2));
        permit.shrink_to(answer.len());
        let mut bytes = permit.bound_to(answer.into());
        let sent = bytes.split_to(3);
        drop(bytes);
        assert_eq!(budget.held(), 2 * SMALL_BODY);
        drop(sent);
        assert_eq!(budget.held(), 0);
    }
}
