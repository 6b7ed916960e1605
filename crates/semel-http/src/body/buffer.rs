//! Bytes that arrive in pieces, and the permit for the memory they take up.

use bytes::Bytes;

use super::Pieces;
use crate::budget::Permit;

/// Copies what it takes in. A piece may be a slice of a read buffer thousands of times its size: to keep
/// the pieces of a client that sends byte by byte would keep a buffer for each of them.
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

    /// Takes a piece in, or changes nothing because there is no room. `most` is the length that the
    /// body is not expected to exceed.
    pub(super) fn push(&mut self, piece: &[u8], most: usize) -> bool {
        let (length, capacity) = (self.bytes.len() + piece.len(), self.bytes.capacity());
        if length > capacity {
            let larger = most.min(2 * capacity).max(length);
            if !self.permit.grow(larger - capacity) {
                return false;
            }
            self.bytes.reserve_exact(larger - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        true
    }

    /// Gives all of it back.
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

    /// The permit, with what it has in reserve.
    pub(super) fn into_permit(self) -> Permit {
        self.permit
    }

    /// What was taken in, and one piece that was not.
    pub(super) fn into_pieces(self, more: Bytes) -> Pieces {
        let (bytes, permit) = self.into_parts();
        [permit.bound_to(bytes), more].into_iter().filter(|piece| !piece.is_empty()).collect()
    }

    /// A copy for somebody who does not keep it.
    pub(super) fn copied(&self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BufferBudget;

    #[test]
    fn what_is_allocated_is_held_and_no_more() {
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
