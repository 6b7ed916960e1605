//! Seals an outcome into the body of another outcome. Whether it is a success stays readable, because the retention
//! depends on it.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::{Body, Head, KeyHash, Outcome, Result, codec};

use crate::{
    error::{damaged, not_opened},
    seal::{self, SealedPart},
    seal_key::SealKey,
    seal_keys::SealKeys,
};

/// The type of every sealed failure.
const FAILURE: &str = "sealed";

/// The most by which sealing makes an outcome larger: the seal itself, the lengths inside, and the wrapping outcome.
pub(crate) const OVERHEAD: usize = seal::OVERHEAD + 512;

pub(crate) fn seal(with: &SealKey, key: &KeyHash, outcome: &Outcome) -> Arc<Outcome> {
    // Compressed before it is sealed: sealed bytes do not compress.
    let packed = codec::pack(outcome);
    let parts = [&[u8::from(packed.compressed)][..], &packed.bytes];
    let bytes = seal::seal(with, SealedPart::Outcome, key, &parts);
    let wrapped = match outcome.is_success() {
        true => Outcome::success(Bytes::new()),
        false => Outcome::failure(FAILURE, ""),
    };
    let head = Head { content_type: Some(Outcome::SEALED.to_owned()), ..Head::default() };
    Arc::new(wrapped.with_head(head).with_body(Body::Kept(bytes.into())))
}

pub(crate) fn open(keys: &SealKeys, key: &KeyHash, wrapped: &Outcome) -> Result<Arc<Outcome>> {
    let part = SealedPart::Outcome;
    let sealed = bytes(wrapped).ok_or_else(|| damaged(key, part))?;
    let plain = Bytes::from(seal::open(keys, part, key, sealed)?);
    let compressed = match plain.first() {
        Some(0) => false,
        Some(1) => true,
        Some(_) | None => return Err(damaged(key, part)),
    };
    let outcome = codec::unpack(plain.slice(1..), compressed).map_err(|_| damaged(key, part))?;
    if outcome.is_success() != wrapped.is_success() {
        let id = seal::id_of(sealed).unwrap_or_default();
        return Err(not_opened(key, part, id));
    }
    Ok(outcome)
}

/// The sealed bytes.
pub(crate) fn bytes(wrapped: &Outcome) -> Option<&Bytes> {
    match wrapped.body() {
        Body::Kept(bytes) => Some(bytes),
        Body::Omitted { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{ErrorKind, Header};

    use super::*;

    const KEY: KeyHash = KeyHash::from_bytes([1; 32]);

    fn keys() -> SealKeys {
        SealKeys::parse(&SealKey::random(&"k".repeat(64)).unwrap().line()).unwrap()
    }

    fn head() -> Head {
        let header = Header { name: "x-canary".into(), value: "canary".into() };
        Head {
            status: Some(201),
            content_type: Some("text/canary".into()),
            headers: vec![header.clone(); 3],
            trailers: vec![header],
        }
    }

    fn all() -> Vec<Outcome> {
        vec![
            Outcome::success(""),
            Outcome::success("canary").with_head(head()),
            Outcome::success("canary ".repeat(10_000)),
            Outcome::success("").with_body(Body::Omitted { length: 1 << 40 }),
            Outcome::failure("canary", "canary").with_head(head()),
        ]
    }

    #[test]
    fn every_outcome_opens_again_and_is_not_readable() {
        let keys = keys();
        for outcome in all() {
            let sealed = seal(keys.first(), &KEY, &outcome);
            assert!(sealed.is_sealed());
            assert_eq!(sealed.is_success(), outcome.is_success());
            assert_eq!(sealed.head().unwrap().status, None);
            let bytes = codec::pack(&sealed);
            assert!(!bytes.compressed, "what is sealed is not compressed again");
            assert!(!bytes.bytes.windows(6).any(|it| it == b"canary"));
            assert_eq!(*open(&keys, &KEY, &sealed).unwrap(), outcome);
            assert!(sealed.size() <= outcome.size() + OVERHEAD, "{outcome:?}");
        }
    }

    #[test]
    fn an_outcome_is_compressed_before_it_is_sealed() {
        let keys = keys();
        let large = Outcome::success("canary ".repeat(10_000));
        assert!(seal(keys.first(), &KEY, &large).size() < 2_000);
    }

    #[test]
    fn a_failure_cannot_be_passed_off_as_a_success() {
        let keys = keys();
        let sealed = seal(keys.first(), &KEY, &Outcome::failure("declined", "no"));
        let forged = Outcome::success(bytes(&sealed).unwrap().clone());
        let forged = forged.with_head(sealed.head().unwrap().clone());
        assert_eq!(open(&keys, &KEY, &forged).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_sealed_outcome_without_its_body_is_an_error() {
        let keys = keys();
        let sealed = seal(keys.first(), &KEY, &Outcome::success("a"));
        let gone = Arc::unwrap_or_clone(sealed).with_body(Body::Omitted { length: 9 });
        assert_eq!(open(&keys, &KEY, &gone).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
