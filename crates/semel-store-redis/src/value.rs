//! A record as a Redis value: one byte of our own, then the codec's bytes.
//!
//! A value in progress has no absolute lease. Its time to live is the [`horizon`], which every reader
//! can work out from the terms, so the last claim or renewal was at `PEXPIRETIME` − horizon: a
//! renewal touches the TTL alone, and whoever wrote the value needed no clock. For the same reason
//! `claimed_at` may be zero, which means "when it was last armed", and `created_at` zero "when it was
//! claimed". All other states carry absolute times. Those of a completed value are what its owner took the
//! server's time for; its time to live is the server's own, and says when it was completed.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Error, ErrorKind, KeyHash, OnLostOwner, Record, Result, State, Terms, Timestamp, codec,
};
use semel_remote::{foreign_value, newer_format, wrong_record};

/// First byte of every value: the format of this module in the upper bits.
const FORMAT: u8 = 0x10;
/// Set in the first byte when somebody was told Busy since the record last changed.
const WAITED: u8 = 0x01;

/// Bytes of a value before labels and outcome.
pub(crate) const HEAD_BYTES: usize = 1 + codec::HEAD_BYTES;

/// How long a claim on hold lives without a renewal, in milliseconds: for ever, in practice.
pub(crate) const HOLD_HORIZON: u64 = 10 * 365 * 86_400_000;

/// How a key's TTL stands, as `PEXPIRETIME` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// There is no key.
    Absent,
    Never,
    At(u64),
}

impl Expiry {
    /// From and to `PEXPIRETIME`'s number.
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

/// What is written for a record.
pub(crate) fn encode(record: &Record) -> (Bytes, Expiry) {
    if record.state == State::InProgress {
        return encode_claim(record.clone());
    }
    let expiry = record.expires_at.map_or(Expiry::Never, |at| Expiry::At(at.as_millis()));
    (value_of(record), expiry)
}

/// What is written for a record in progress.
pub(crate) fn encode_claim(record: Record) -> (Bytes, Expiry) {
    let armed_at = record.lease_until.as_millis().saturating_sub(record.terms.lease.as_millis());
    let kept =
        |at: Timestamp, unless: u64| if at.as_millis() == unless { 0 } else { at.as_millis() };
    let expiry = Expiry::At(armed_at.saturating_add(horizon(&record.terms)));
    let bare = Record {
        claimed_at: Timestamp::from_millis(kept(record.claimed_at, armed_at)),
        created_at: Timestamp::from_millis(kept(record.created_at, record.claimed_at.as_millis())),
        lease_until: Timestamp::default(),
        expires_at: None,
        ..record
    };
    (value_of(&bare), expiry)
}

fn value_of(record: &Record) -> Bytes {
    codec::encode_behind(&[FORMAT], record)
}

/// Why a value is no record of the key that was asked for.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The value itself.
    Value(Error),
    /// It is another key's: replies are mixed up, and none from this connection can be trusted.
    MixedUp(Error),
}

/// A value as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    bytes: Bytes,
    /// Without what the TTL says: a value in progress looks as if its lease were over.
    pub(crate) bare: Record,
}

impl Seen {
    /// Reads a value, and checks that it is this key's.
    pub(crate) fn read(key: &KeyHash, bytes: Vec<u8>) -> Result<Self, Unreadable> {
        Self::parse(key, Bytes::from(bytes))
    }

    pub(crate) fn parse(key: &KeyHash, bytes: Bytes) -> Result<Self, Unreadable> {
        match bytes.first() {
            Some(first) if first & !WAITED == FORMAT => {}
            Some(first) if *first > FORMAT => {
                return Err(Unreadable::Value(newer_format("redis", *first)));
            }
            _ => return Err(Unreadable::Value(foreign_value("redis", key, "prefix"))),
        }
        let bare = codec::decode(&bytes.slice(1..)).map_err(Unreadable::Value)?;
        if bare.key != *key {
            return Err(Unreadable::MixedUp(wrong_record("redis", key)));
        }
        Ok(Self { bytes, bare })
    }

    /// What a script compares to know that the value is still this one.
    pub(crate) fn head(&self) -> Bytes {
        self.bytes.slice(1..HEAD_BYTES)
    }

    /// The record, with what its TTL says.
    pub(crate) fn record(self, expiry: Expiry) -> Result<Record> {
        let record = self.bare;
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

    /// The record of a claim that was last armed then.
    pub(crate) fn claimed(self, at: Timestamp) -> Record {
        armed(self.bare, at)
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

/// The server counted the time from the completion on; what the value says is its owner's estimate.
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
        "redis: the claim of key {key} has no TTL, so nobody knows when its lease ends; if its owner is \
         gone, delete it"
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
        Seen::read(&record.key, bytes.to_vec()).unwrap().record(expiry).unwrap()
    }

    #[test]
    fn a_claim_comes_back_from_its_ttl_alone() {
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
    fn a_first_claim_holds_no_time_of_its_own() {
        let (now, _) = encode(&claimed(OnLostOwner::Rerun));
        for at in [100, 108, 140, 148, 156] {
            assert_eq!(now[1 + at..][..8], [0; 8], "offset {at}");
        }
    }

    #[test]
    fn another_keys_record_is_noticed() {
        let (bytes, _) = encode(&claimed(OnLostOwner::Rerun));
        let read =
            |key: u8, bytes: &[u8]| Seen::read(&KeyHash::from_bytes([key; 32]), bytes.to_vec());
        assert!(matches!(read(8, &bytes), Err(Unreadable::MixedUp(_))));
        assert!(matches!(read(7, b"hello"), Err(Unreadable::Value(_))));
    }
}
