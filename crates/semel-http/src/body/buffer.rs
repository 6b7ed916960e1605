//! Bytes that arrive in pieces, and the permit for the memory they take up.

use bytes::Bytes;

use super::Pieces;
use crate::budget::Permit;

/// A copy of the pieces that arrived. A piece may be a slice of a read buffer thousands of times its size. If a
/// client sends byte by byte, keeping the pieces would keep one such buffer for each byte.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    permit: Permit,
}

impl Buffer {
    pub(super) const fn new(permit: Permit) -> Self {
        Self { bytes: Vec::new(), permit }
    }

    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a piece. Returns false and changes nothing if the budget has no capacity for it. The body is
    /// expected to have at most `expected` bytes.
    pub(super) fn push(&mut self, piece: &[u8], expected: usize) -> bool {
        let (length, capacity) = (self.bytes.len() + piece.len(), self.bytes.capacity());
        if length > capacity {
            let larger = expected.min(2 * capacity).max(length);
            if !self.permit.grow(larger - capacity) {
                return false;
            }
            self.bytes.reserve_exact(larger - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        true
    }

    /// Frees the bytes and their permit.
    pub(super) fn clear(&mut self) {
        self.bytes = Vec::new();
        self.permit.shrink_to(0);
    }

    /// The bytes, and the permit for them.
    pub(super) fn into_parts(self) -> (Bytes, Permit) {
        let Self { bytes, mut permit } = self;
        permit.shrink_to(bytes.len());
        (bytes.into_boxed_slice().into(), permit)
    }

    /// The permit, with the bytes it has reserved.
    pub(super) fn into_permit(self) -> Permit {
        self.permit
    }

    /// The bytes so far, and one more piece that was not appended.
    pub(super) fn into_pieces(self, more: Bytes) -> Pieces {
        let (bytes, permit) = self.into_parts();
        [permit.bound_to(bytes), more].into_iter().filter(|piece| !piece.is_empty()).collect()
    }

    /// A short-lived copy of the bytes, which the permit does not count.
    pub(super) fn copied(&self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BufferBudget;

    #[test]
    fn the_budget_counts_exactly_the_allocated_bytes() {
        let budget = BufferBudget::new(100);
        let mut buffer = Buffer::new(budget.permit());
        for _ in 0..60 {
            assert!(buffer.push(b"x", 60));
            assert_eq!(budget.held(), buffer.bytes.capacity());
        }
        assert!(!buffer.push(&[b'y'; 41], 200));
        let (bytes, permit) = buffer.into_parts();
        assert_eq!((bytes.len(), budget.held()), (60, 60));
        drop(permit);
        assert_eq!(budget.held(), 0);
    }
}
