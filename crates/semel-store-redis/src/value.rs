//! Encodes a record as a Redis value: one format byte, then the codec's bytes.
//!
//! The value of a record in progress contains no absolute end of its lease. Its TTL is the [`horizon`], which every
//! reader computes from the terms, so the last claim or renewal was at `PEXPIRETIME` − horizon. A renewal therefore
//! changes the TTL only, and the writer needs no clock. For a contested record, the TTL is set as if its lease ended with
//! the grace period. For the same reason a `claimed_at` of zero means "at the last
//! claim or renewal", and a `created_at` of zero "at the claim". All other states contain absolute times. In a
//! completed record these are the owner's estimate of the server's time; its TTL was set by the server, and shows
//! when it was completed.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Error, ErrorKind, KeyHash, OnLostOwner, Record, Result, State, Terms, Timestamp, codec,
};
use semel_remote::{foreign_value, newer_format, wrong_record};

/// The first byte of every value: the format, in the upper bits.
const FORMAT: u8 = 0x10;
/// This bit of the first byte is set when a caller got Busy since the record last changed.
const WAITED: u8 = 0x01;

/// Bytes of a value before labels and outcome.
pub(crate) const HEAD_BYTES: usize = 1 + codec::HEAD_BYTES;

/// The TTL of a claim in hold mode, in milliseconds: practically for ever.
pub(crate) const HOLD_HORIZON: u64 = 10 * 365 * 86_400_000;

/// The expiry of a key, as `PEXPIRETIME` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// There is no key.
    Absent,
    Never,
    At(u64),
}

impl Expiry {
    /// From the reply to `PEXPIRETIME`.
    pub(crate) const fn from_server(at: i64) -> Self {
        match at {
            -1 => Self::Never,
            at if at >= 0 => Self::At(at.unsigned_abs()),
            _ => Self::Absent,
        }
    }

    pub(crate) fn to_server(self) -> i64 {
        match self {
            Self::Absent => -2,
            Self::Never => -1,
            Self::At(at) => i64::try_from(at).unwrap_or(i64::MAX),
        }
    }
}

/// The TTL that a claim or renewal sets, in milliseconds.
pub(crate) fn horizon(terms: &Terms) -> u64 {
    match terms.on_lost_owner {
        OnLostOwner::Hold => HOLD_HORIZON,
        OnLostOwner::Rerun => terms.lease.as_millis().saturating_add(terms.retention.as_millis()),
    }
}

/// Encodes a record.
pub(crate) fn encode(record: &Record) -> (Bytes, Expiry) {
    if record.state == State::InProgress {
        return encode_claim(record.clone());
    }
    let expiry = record.expires_at.map_or(Expiry::Never, |at| Expiry::At(at.as_millis()));
    (value_of(FORMAT, record), expiry)
}

/// Encodes a record in progress.
pub(crate) fn encode_claim(record: Record) -> (Bytes, Expiry) {
    encode_in_progress(FORMAT, record)
}

/// Encodes a record in progress for which a caller waits.
pub(crate) fn encode_waited(record: Record) -> (Bytes, Expiry) {
    encode_in_progress(FORMAT | WAITED, record)
}

fn encode_in_progress(first_byte: u8, record: Record) -> (Bytes, Expiry) {
    let armed_at = record.lease_until.as_millis().saturating_sub(record.terms.lease.as_millis());
    let kept =
        |at: Timestamp, unless: u64| if at.as_millis() == unless { 0 } else { at.as_millis() };
    let expiry = Expiry::At(armed_at.saturating_add(horizon(&record.terms)));
    let untimed = Record {
        claimed_at: Timestamp::from_millis(kept(record.claimed_at, armed_at)),
        created_at: Timestamp::from_millis(kept(record.created_at, record.claimed_at.as_millis())),
        lease_until: Timestamp::default(),
        expires_at: None,
        ..record
    };
    (value_of(first_byte, &untimed), expiry)
}

fn value_of(first_byte: u8, record: &Record) -> Bytes {
    codec::encode_behind(&[first_byte], record)
}

/// Why a value is not a record of the requested key.
#[derive(Debug)]
pub(crate) enum UnreadableValue {
    /// The value cannot be decoded.
    Value(Error),
    /// It is the record of another key: replies are mixed up, and none on this connection can be trusted.
    OtherKey(Error),
}

/// A value, and the record that it contains.
#[derive(Clone, Debug)]
pub(crate) struct StoredValue {
    bytes: Bytes,
    /// Without the times that the TTL shows. In progress, its lease looks ended.
    pub(crate) untimed: Record,
}

impl StoredValue {
    /// Decodes a value, and checks that it belongs to this key.
    pub(crate) fn read(key: &KeyHash, bytes: Vec<u8>) -> Result<Self, UnreadableValue> {
        Self::parse(key, Bytes::from(bytes))
    }

    pub(crate) fn parse(key: &KeyHash, bytes: Bytes) -> Result<Self, UnreadableValue> {
        match bytes.first() {
            Some(first) if first & !WAITED == FORMAT => {}
            Some(first) if *first > FORMAT => {
                return Err(UnreadableValue::Value(newer_format("redis", *first)));
            }
            _ => return Err(UnreadableValue::Value(foreign_value("redis", key, "prefix"))),
        }
        let untimed = codec::decode(&bytes.slice(1..)).map_err(UnreadableValue::Value)?;
        if untimed.key != *key {
            return Err(UnreadableValue::OtherKey(wrong_record("redis", key)));
        }
        Ok(Self { bytes, untimed })
    }

    /// The part that scripts compare, to see that the value has not changed.
    pub(crate) fn head(&self) -> Bytes {
        self.bytes.slice(1..HEAD_BYTES)
    }

    /// The record, with the times that its TTL shows.
    pub(crate) fn record(self, expiry: Expiry) -> Result<Record> {
        let record = self.untimed;
        match (record.state, expiry) {
            (State::InProgress, Expiry::At(expires_at)) => {
                let armed_at = expires_at.saturating_sub(horizon(&record.terms));
                Ok(armed(record, Timestamp::from_millis(armed_at)))
            }
            (State::InProgress, Expiry::Never | Expiry::Absent) => Err(without_ttl(&record.key)),
            (State::Completed, Expiry::At(expires_at)) => Ok(completed(record, expires_at)),
            _ => Ok(record),
        }
    }

    /// The record of a claim that was made at this time.
    pub(crate) fn claimed(self, at: Timestamp) -> Record {
        armed(self.untimed, at)
    }
}

fn armed(mut record: Record, at: Timestamp) -> Record {
    let or = |at: Timestamp, other| if at == Timestamp::default() { other } else { at };
    record.lease_until = at.after(record.terms.lease);
    record.claimed_at = or(record.claimed_at, at);
    record.created_at = or(record.created_at, record.claimed_at);
    record.expires_at = match record.terms.on_lost_owner {
        OnLostOwner::Rerun => Some(at.after(Duration::from_millis(horizon(&record.terms)))),
        OnLostOwner::Hold => None,
    };
    record
}

/// The TTL began with the completion by the server's clock; the times in the value are the owner's estimate.
fn completed(mut record: Record, expires_at: u64) -> Record {
    let Some(outcome) = &record.outcome else { return record };
    let kept = record.terms.kept(outcome).as_millis();
    let completed_at = Timestamp::from_millis(expires_at.saturating_sub(kept));
    record.expires_at = Some(Timestamp::from_millis(expires_at));
    record.completed_at = Some(completed_at);
    record.claimed_at = record.claimed_at.min(completed_at);
    record.created_at = record.created_at.min(completed_at);
    record
}

fn without_ttl(key: &KeyHash) -> Error {
    let subject = format!(
        "redis: the claim of key {key} has no TTL, so the end of its lease is unknown; if its owner is gone, \
         delete the key"
    );
    Error::new(ErrorKind::Corrupt, subject)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use semel_core::{Claim, ClaimRequest, Fingerprint, Nonce, Span, steps};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn claimed(on_lost_owner: OnLostOwner) -> Record {
        let ms = Span::from_millis;
        let request = ClaimRequest {
            key: KeyHash::from_bytes([7; 32]),
            fingerprint: Fingerprint::of_bytes(b"this"),
            nonce: Nonce::random(),
            terms: Terms {
                lease: ms(30_000),
                on_lost_owner,
                max_attempts: None,
                retention: ms(86_400_000),
                failure_retention: ms(3_600_000),
            },
            labels: None,
        };
        let step = steps::claim(None, &request, NOW);
        assert!(matches!(step.answer, Claim::Granted(_)));
        let steps::Change::Put(record) = step.change else { panic!("a first claim is granted") };
        record
    }

    fn read_back(record: &Record) -> Record {
        let (bytes, expiry) = encode(record);
        StoredValue::read(&record.key, bytes.to_vec()).unwrap().record(expiry).unwrap()
    }

    #[test]
    fn a_claim_is_decoded_from_its_value_and_ttl() {
        for on_lost_owner in [OnLostOwner::Rerun, OnLostOwner::Hold] {
            let record = claimed(on_lost_owner);
            assert_eq!(read_back(&record), record);
            let later = Record { claimed_at: NOW.after(Duration::from_secs(5)), ..record };
            let mut later = Record { lease_until: NOW.after(Duration::from_secs(40)), ..later };
            later.expires_at = later.expires_at.map(|at| at.after(Duration::from_secs(10)));
            assert_eq!(read_back(&later), later);
        }
    }

    #[test]
    fn the_value_of_a_first_claim_contains_no_time() {
        let (now, _) = encode(&claimed(OnLostOwner::Rerun));
        for at in [100, 108, 140, 148, 156] {
            assert_eq!(now[1 + at..][..8], [0; 8], "offset {at}");
        }
    }

    #[test]
    fn the_record_of_another_key_is_refused() {
        let (bytes, _) = encode(&claimed(OnLostOwner::Rerun));
        let read = |key: u8, bytes: &[u8]| {
            StoredValue::read(&KeyHash::from_bytes([key; 32]), bytes.to_vec())
        };
        assert!(matches!(read(8, &bytes), Err(UnreadableValue::OtherKey(_))));
        assert!(matches!(read(7, b"hello"), Err(UnreadableValue::Value(_))));
    }
}
