//! Encodes a record as a NATS value: one format byte, then the codec's bytes.
//!
//! The writer of a value does not know when the server will store it. So times that begin with the write are relative
//! to it: a time of zero means "when the server stored this message", and lease and expiry are durations from then
//! on. Times before the write are absolute, as the server reported them.

use bytes::Bytes;
use semel_core::{KeyHash, Record, Result, Span, State, Timestamp, codec};
use semel_remote::{foreign_value, newer_format, wrong_record};

use crate::jetstream_api::StoredMessage;

/// The first byte of every value: the format.
const FORMAT: u8 = 0x10;

/// An encoded value and its TTL.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) bytes: Bytes,
    /// Seconds after which the server deletes it, not before the record expires. `None` for never.
    pub(crate) ttl: Option<u64>,
}

/// Encodes a record as a step made it at `now`.
pub(crate) fn encode(record: &Record, now: Timestamp) -> Encoded {
    let relative =
        |at: Timestamp| Timestamp::from_millis(if at == now { 0 } else { at.as_millis() });
    let span = |at: Timestamp| at.as_millis().saturating_sub(now.as_millis());
    let kept = record.expires_at.map(span);
    let stored = Record {
        claimed_at: relative(record.claimed_at),
        created_at: relative(record.created_at),
        completed_at: record.completed_at.map(relative),
        lease_until: match record.state {
            State::InProgress => Timestamp::from_millis(span(record.lease_until)),
            _ => record.lease_until,
        },
        expires_at: kept.map(Timestamp::from_millis),
        ..record.clone()
    };
    let bytes = codec::encode_behind(&[FORMAT], &stored);
    Encoded { bytes, ttl: kept.map(|kept| kept.div_ceil(1000).max(1)) }
}

/// A key as it was read from the leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySnapshot {
    /// Zero when there is no message.
    pub(crate) revision: u64,
    /// When the server stored it.
    pub(crate) at: Timestamp,
    /// The value, or the mark of a tombstone.
    pub(crate) bytes: Bytes,
    pub(crate) record: Option<Record>,
}

impl KeySnapshot {
    /// Decodes a message, and checks that it belongs to this key.
    pub(crate) fn read(key: &KeyHash, message: Option<StoredMessage>) -> Result<Self> {
        let Some(StoredMessage { revision, at, value, mark }) = message else {
            return Ok(Self::default());
        };
        let Some(bytes) = value else {
            return Ok(Self { revision, at, bytes: mark, ..Self::default() });
        };
        match bytes.first() {
            Some(&FORMAT) => {}
            Some(first) if *first > FORMAT => return Err(newer_format("nats", *first)),
            _ => return Err(foreign_value("nats", key, "bucket")),
        }
        let stored = codec::decode(&bytes.slice(1..))?;
        if stored.key != *key {
            return Err(wrong_record("nats", key));
        }
        Ok(Self { revision, at, bytes, record: Some(absolute(stored, at)) })
    }
}

/// The record of a message that the server stored at `stored_at`.
pub(crate) fn absolute(stored: Record, stored_at: Timestamp) -> Record {
    let or = |at: Timestamp| if at == Timestamp::default() { stored_at } else { at };
    let after = |span: Timestamp| stored_at.after(Span::from_millis(span.as_millis()));
    Record {
        claimed_at: or(stored.claimed_at),
        created_at: or(stored.created_at),
        completed_at: stored.completed_at.map(or),
        lease_until: match stored.state {
            State::InProgress => after(stored.lease_until),
            _ => stored.lease_until,
        },
        expires_at: stored.expires_at.map(after),
        ..stored
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use semel_core::{ClaimRequest, ErrorKind, Fingerprint, Nonce, OnLostOwner, Terms, steps};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const KEY: KeyHash = KeyHash::from_bytes([7; 32]);

    fn claimed(on_lost_owner: OnLostOwner, now: Timestamp) -> Record {
        let ms = Span::from_millis;
        let request = ClaimRequest {
            key: KEY,
            fingerprint: Fingerprint::of_bytes(b"this"),
            nonce: Nonce::from_bytes([1; 16]),
            terms: Terms {
                lease: ms(30_000),
                on_lost_owner,
                max_attempts: None,
                retention: ms(86_400_100),
                failure_retention: ms(3_600_000),
            },
            labels: None,
        };
        match steps::claim(None, &request, now).change {
            steps::Change::Put(record) => record,
            other => panic!("a first claim is granted, not {other:?}"),
        }
    }

    fn decoded(record: &Record, now: Timestamp, at: Timestamp) -> Record {
        let value = Some(encode(record, now).bytes);
        KeySnapshot::read(&KEY, Some(StoredMessage { revision: 1, at, value, mark: Bytes::new() }))
            .unwrap()
            .record
            .unwrap()
    }

    #[test]
    fn a_claim_begins_when_the_server_stored_it() {
        let later = NOW.after(Duration::from_secs(5));
        for on_lost_owner in [OnLostOwner::Rerun, OnLostOwner::Hold] {
            let record = claimed(on_lost_owner, NOW);
            assert_eq!(decoded(&record, NOW, later), claimed(on_lost_owner, later));
        }
    }

    #[test]
    fn times_before_the_write_are_not_changed() {
        let record = claimed(OnLostOwner::Rerun, NOW);
        let later = NOW.after(Duration::from_secs(10));
        let renewed = Record {
            lease_until: later.after(record.terms.lease),
            expires_at: Some(later.after(record.terms.lease).after(record.terms.retention)),
            ..record
        };
        assert_eq!(decoded(&renewed, later, later), renewed);
    }

    #[test]
    fn a_ttl_is_whole_seconds_and_never_too_short() {
        let ttl = |on_lost_owner| encode(&claimed(on_lost_owner, NOW), NOW).ttl;
        assert_eq!(ttl(OnLostOwner::Rerun), Some(86_431));
        assert_eq!(ttl(OnLostOwner::Hold), None);
    }

    #[test]
    fn the_record_of_another_key_and_a_foreign_value_are_refused() {
        let bytes = encode(&claimed(OnLostOwner::Rerun, NOW), NOW).bytes;
        let read = |key: u8, value: Bytes| {
            let message =
                StoredMessage { revision: 1, at: NOW, value: Some(value), mark: Bytes::new() };
            KeySnapshot::read(&KeyHash::from_bytes([key; 32]), Some(message)).map(drop)
        };
        assert!(read(7, bytes.clone()).is_ok());
        assert_eq!(read(8, bytes).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(read(7, Bytes::from_static(b"\x01")).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            read(7, Bytes::from_static(b"\x20")).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}
