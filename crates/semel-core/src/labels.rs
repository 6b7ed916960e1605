//! The readable parts of a key, kept in the record for operators unless redaction is on.

use std::{fmt, sync::Arc};

use crate::{Fingerprint, PartDigests, parts::RecordedParts};

/// Namespace, principal, operation and the caller's id, in one shared allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels {
    text: Arc<str>,
    ends: [u16; 3],
}

impl Labels {
    /// Labels of a key, or labels from a store, in which case `id` is a [`Labels::stored_id`]. Parts longer than a
    /// [`Scope`](crate::Scope) accepts are cut, never rejected.
    #[must_use]
    pub fn new(namespace: &str, principal: &str, operation: &str, id: &str) -> Self {
        let parts = [namespace, principal, operation, id];
        if parts.iter().map(|part| part.len()).sum::<usize>() > Self::MAX_BYTES {
            let short = parts.map(|part| &part[..part.floor_char_boundary(Self::MAX_BYTES / 4)]);
            return Self::new(short[0], short[1], short[2], short[3]);
        }
        let (first, second) = (namespace.len(), namespace.len() + principal.len());
        let end = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
        let ends = [end(first), end(second), end(second + operation.len())];
        Self { text: Arc::from(parts.concat()), ends }
    }

    const MAX_BYTES: usize = u16::MAX as usize;

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.text[..self.end(0)]
    }

    /// The principal; empty for anonymous callers, a keyed hash for credentials.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.text[self.end(0)..self.end(1)]
    }

    /// The operation.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.text[self.end(1)..self.end(2)]
    }

    /// The caller's id.
    #[must_use]
    pub fn id(&self) -> &str {
        RecordedParts::split(self.stored_id()).0
    }

    /// What a store keeps for the id: the id itself and, behind it, digests of the request's parts.
    #[must_use]
    pub fn stored_id(&self) -> &str {
        &self.text[self.end(2)..]
    }

    /// The same labels with the digests of a request's parts, and the sealed fingerprint of that request.
    #[must_use]
    pub(crate) fn with_parts(&self, fingerprint: &Fingerprint, parts: &PartDigests) -> Self {
        let suffix = RecordedParts::new(fingerprint, parts).suffix();
        Self { text: Arc::from([&*self.text, &suffix].concat()), ends: self.ends }
    }

    /// The digests of the parts of the request that made the record.
    pub(crate) fn parts(&self) -> Option<RecordedParts> {
        RecordedParts::split(self.stored_id()).1
    }

    /// Bytes of text held.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    fn end(&self, part: usize) -> usize {
        usize::from(self.ends[part])
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Labels([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_comes_back_whole() {
        let labels = Labels::new("payments", "", "charge", "ördre-42");
        let parts = [labels.namespace(), labels.principal(), labels.operation(), labels.id()];
        assert_eq!(parts, ["payments", "", "charge", "ördre-42"]);
    }

    #[test]
    fn an_absurd_part_is_cut_at_a_character() {
        let labels = Labels::new("ns", &"ö".repeat(60_000), "op", "id");
        assert!(labels.len() <= usize::from(u16::MAX));
        assert!(labels.principal().chars().all(|c| c == 'ö'));
    }
}
