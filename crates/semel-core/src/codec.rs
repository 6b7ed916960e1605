//! The record as bytes: compact and versioned. Decoding any bytes is safe.
//!
//! The head has fixed offsets, big-endian, so that a script inside a store can compare owner and
//! state without reading the rest:
//!
//! | offset | bytes | field | | offset | bytes | field |
//! |---|---|---|---|---|---|---|
//! | 0 | 1 | format version | | 96 | 4 | max attempts, 0 = none |
//! | 1 | 1 | state | | 100 | 8 | claimed at |
//! | 2 | 2 | flags | | 108 | 8 | lease until |
//! | 4 | 32 | key hash | | 116 | 8 | lease |
//! | 36 | 32 | fingerprint | | 124 | 8 | retention |
//! | 68 | 16 | nonce | | 132 | 8 | failure retention |
//! | 84 | 8 | token | | 140 | 8 | created at |
//! | 92 | 4 | attempts | | 148, 156 | 8, 8 | completed at, expires at |
//!
//! A record in progress has no time of completion. There the flag of one means that the key is contested: earlier
//! versions, which refuse unknown flags, ignore it.
//!
//! Times and spans are milliseconds. Labels and outcome follow where the flags say so; a large
//! outcome is compressed with zstd.

mod outcome;
mod wire;

use std::{num::NonZeroU32, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};

use self::wire::{WireReader, WireWriter, encoded_len};
use crate::{
    Error, ErrorKind, Fingerprint, KeyHash, Labels, Nonce, OnLostOwner, Outcome, Record, Result,
    State, Terms, Timestamp,
};

/// The format this build writes, and the newest it reads.
pub const FORMAT_VERSION: u8 = 1;

/// Bytes before labels and outcome.
pub const HEAD_BYTES: usize = 164;

/// Outcomes over this many bytes are compressed when that makes them smaller.
pub const COMPRESS_ABOVE: usize = 1024;

mod flag {
    pub(super) const DIRTY: u16 = 1;
    pub(super) const ABANDONED: u16 = 1 << 1;
    pub(super) const HOLD: u16 = 1 << 2;
    pub(super) const FINGERPRINT: u16 = 1 << 3;
    pub(super) const NONCE: u16 = 1 << 4;
    pub(super) const COMPLETED_AT: u16 = 1 << 5;
    pub(super) const EXPIRES_AT: u16 = 1 << 6;
    pub(super) const LABELS: u16 = 1 << 7;
    pub(super) const OUTCOME: u16 = 1 << 8;
    pub(super) const COMPRESSED: u16 = 1 << 9;
    pub(super) const ALL: u16 = (1 << 10) - 1;
}

/// Writes a record.
#[must_use]
pub fn encode(record: &Record) -> Bytes {
    encode_behind(&[], record)
}

/// Writes a record behind a prefix.
#[must_use]
pub fn encode_behind(prefix: &[u8], record: &Record) -> Bytes {
    let outcome = record.outcome.as_deref().map(outcome::pack);
    // The exact length: a longer buffer would be copied when it is shared.
    let length = prefix.len() + length(record, outcome.as_ref());
    let mut out = BytesMut::with_capacity(length);
    out.put_slice(prefix);
    write(record, outcome.as_ref(), &mut out);
    debug_assert_eq!(out.len(), length);
    out.freeze()
}

/// Appends a record to `buffer`.
pub fn encode_into(record: &Record, buffer: &mut BytesMut) {
    let outcome = record.outcome.as_deref().map(outcome::pack);
    buffer.reserve(length(record, outcome.as_ref()));
    write(record, outcome.as_ref(), buffer);
}

fn length(record: &Record, outcome: Option<&Packed>) -> usize {
    let labels =
        record.labels.as_ref().map_or(0, |labels| parts(labels).map(encoded_len).iter().sum());
    HEAD_BYTES + labels + outcome.map_or(0, |packed| encoded_len(&packed.bytes))
}

fn write(record: &Record, outcome: Option<&Packed>, buffer: &mut BytesMut) {
    let mut out = WireWriter::behind(std::mem::take(buffer));
    out.raw(&head(record, outcome.is_some_and(|packed| packed.compressed)));
    if let Some(labels) = &record.labels {
        parts(labels).into_iter().for_each(|part| out.bytes(part));
    }
    if let Some(packed) = outcome {
        out.bytes(&packed.bytes);
    }
    *buffer = out.into_buffer();
}

fn parts(labels: &Labels) -> [&[u8]; 4] {
    [labels.namespace(), labels.principal(), labels.operation(), labels.stored_id()]
        .map(str::as_bytes)
}

/// An outcome as bytes, for stores that keep it apart from the record's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// What [`unpack`] reads.
    pub bytes: Bytes,
    /// True if they are compressed.
    pub compressed: bool,
}

impl Packed {
    /// The bytes as they follow head and labels in a record. The flag [`OUTCOME_FLAG`] says that they are there, and
    /// [`COMPRESSED_FLAG`] that they are compressed.
    #[must_use]
    pub fn section(&self) -> Bytes {
        let mut out = WireWriter::with_capacity(self.bytes.len() + 10);
        out.bytes(&self.bytes);
        out.finish()
    }
}

/// The flag of a record that has an outcome.
pub const OUTCOME_FLAG: u16 = flag::OUTCOME;
/// The flag of a record whose outcome is compressed.
pub const COMPRESSED_FLAG: u16 = flag::COMPRESSED;
/// The flag of a record with a time of completion. On a record in progress: that the key is contested.
pub const COMPLETED_AT_FLAG: u16 = flag::COMPLETED_AT;
/// The flag of a record that expires.
pub const EXPIRES_AT_FLAG: u16 = flag::EXPIRES_AT;
/// The flag of a record that its owner abandoned.
pub const ABANDONED_FLAG: u16 = flag::ABANDONED;
/// The flag of a record in hold mode.
pub const HOLD_FLAG: u16 = flag::HOLD;

/// Writes an outcome alone.
#[must_use]
pub fn pack(outcome: &Outcome) -> Packed {
    outcome::pack(outcome)
}

/// Reads an outcome written by [`pack`].
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] for anything that [`pack`] does not write.
pub fn unpack(bytes: Bytes, compressed: bool) -> Result<Arc<Outcome>> {
    outcome::unpack(bytes, compressed)
}

/// The fields of a record that an index needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The key of the record.
    pub key: KeyHash,
    /// The state of the key.
    pub state: State,
    /// When the record expires and counts as absent.
    pub expires_at: Option<Timestamp>,
}

/// Reads the head of a record written by [`encode`], without the rest.
///
/// # Errors
///
/// As [`decode`], for errors in the head.
pub fn peek(bytes: &[u8]) -> Result<Peek> {
    let head = bytes.get(..HEAD_BYTES).ok_or_else(|| corrupt("it ends too early"))?;
    check_version(head[0])?;
    let flags = u16::from_be_bytes([head[2], head[3]]);
    let at = |offset: usize| head[offset..].first_chunk().copied();
    let key = head[4..].first_chunk().copied().map(KeyHash::from_bytes);
    let expires_at = at(156).map(u64::from_be_bytes).map(Timestamp::from_millis);
    Ok(Peek {
        key: key.ok_or_else(|| corrupt("it has no key"))?,
        state: state_of(head[1])?,
        expires_at: expires_at.filter(|_| flags & flag::EXPIRES_AT != 0),
    })
}

/// Reads a record written by [`encode`]. Bodies share the memory of `bytes`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for a newer format, [`ErrorKind::Corrupt`] for anything that
/// [`encode`] does not write.
pub fn decode(bytes: &Bytes) -> Result<Record> {
    let mut input = WireReader::new(bytes.clone());
    check_version(input.u8()?)?;
    let state = state_of(input.u8()?)?;
    let flags = input.u16()?;
    if flags & !flag::ALL != 0 {
        return Err(corrupt("unknown flags"));
    }
    let mut record = read_head(&mut input, state, flags)?;
    if flags & flag::LABELS != 0 {
        let parts = [input.text()?, input.text()?, input.text()?, input.text()?];
        record.labels = Some(Labels::new(&parts[0], &parts[1], &parts[2], &parts[3]));
    }
    if flags & flag::OUTCOME != 0 {
        record.outcome = Some(outcome::unpack(input.bytes()?, flags & flag::COMPRESSED != 0)?);
    } else if state == State::Completed {
        return Err(corrupt("completed without an outcome"));
    }
    input.end()?;
    Ok(record)
}

fn check_version(version: u8) -> Result<()> {
    if version > FORMAT_VERSION {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "record: format {version} is newer than {FORMAT_VERSION}, the newest this build \
                 reads; upgrade this node first"
            ),
        ));
    }
    if version == 0 {
        return Err(corrupt("format version is zero"));
    }
    Ok(())
}

fn head(record: &Record, compressed: bool) -> [u8; HEAD_BYTES] {
    let (mut head, terms) = ([0; HEAD_BYTES], &record.terms);
    let mut out = &mut head[..];
    out.put_u8(FORMAT_VERSION);
    out.put_u8(state_code(record.state));
    out.put_u16(flags(record) | if compressed { flag::COMPRESSED } else { 0 });
    out.put_slice(record.key.as_bytes());
    out.put_slice(&record.fingerprint.as_ref().map_or([0; 32], |it| *it.as_bytes()));
    out.put_slice(&record.nonce.as_ref().map_or([0; 16], |it| *it.as_bytes()));
    out.put_u64(record.token);
    out.put_u32(record.attempts);
    out.put_u32(terms.max_attempts.map_or(0, NonZeroU32::get));
    out.put_u64(record.claimed_at.as_millis());
    out.put_u64(record.lease_until.as_millis());
    out.put_u64(terms.lease.as_millis());
    out.put_u64(terms.retention.as_millis());
    out.put_u64(terms.failure_retention.as_millis());
    out.put_u64(record.created_at.as_millis());
    out.put_u64(record.completed_at.unwrap_or_default().as_millis());
    out.put_u64(record.expires_at.unwrap_or_default().as_millis());
    head
}

fn read_head(input: &mut WireReader, state: State, flags: u16) -> Result<Record> {
    let has = |flag: u16| flags & flag != 0;
    let key = KeyHash::from_bytes(input.array()?);
    let fingerprint = Fingerprint::from_stored(input.array()?);
    let nonce = Nonce::from_bytes(input.array()?);
    let (token, attempts) = (input.u64()?, input.u32()?);
    let max_attempts = NonZeroU32::new(input.u32()?);
    let (claimed_at, lease_until) = (input.time()?, input.time()?);
    let (lease, retention, failure_retention) = (input.span()?, input.span()?, input.span()?);
    let (created_at, completed_at, expires_at) = (input.time()?, input.time()?, input.time()?);
    let is_in_progress = state == State::InProgress;
    let on_lost_owner = if has(flag::HOLD) { OnLostOwner::Hold } else { OnLostOwner::Rerun };
    if is_in_progress && !has(flag::NONCE) {
        return Err(corrupt("in progress without an owner"));
    }
    Ok(Record {
        key,
        state,
        fingerprint: has(flag::FINGERPRINT).then_some(fingerprint),
        nonce: has(flag::NONCE).then_some(nonce),
        token,
        attempts,
        dirty: has(flag::DIRTY),
        abandoned: has(flag::ABANDONED),
        contested: is_in_progress && has(flag::COMPLETED_AT),
        claimed_at,
        lease_until,
        terms: Terms { lease, on_lost_owner, max_attempts, retention, failure_retention },
        created_at,
        completed_at: (!is_in_progress && has(flag::COMPLETED_AT)).then_some(completed_at),
        expires_at: has(flag::EXPIRES_AT).then_some(expires_at),
        outcome: None,
        labels: None,
    })
}

fn flags(record: &Record) -> u16 {
    [
        (record.dirty, flag::DIRTY),
        (record.abandoned, flag::ABANDONED),
        (record.terms.on_lost_owner == OnLostOwner::Hold, flag::HOLD),
        (record.fingerprint.is_some(), flag::FINGERPRINT),
        (record.nonce.is_some(), flag::NONCE),
        (has_time_of_completion(record), flag::COMPLETED_AT),
        (record.expires_at.is_some(), flag::EXPIRES_AT),
        (record.labels.is_some(), flag::LABELS),
        (record.outcome.is_some(), flag::OUTCOME),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .sum()
}

/// Of a record in progress: whether the key is contested. An earlier version may have left a time in it.
fn has_time_of_completion(record: &Record) -> bool {
    match record.state {
        State::InProgress => record.contested,
        State::Open | State::Completed | State::Unknown | State::Dead | State::Erased => {
            record.completed_at.is_some()
        }
    }
}

const fn state_code(state: State) -> u8 {
    match state {
        State::Open => 1,
        State::InProgress => 2,
        State::Completed => 3,
        State::Unknown => 4,
        State::Dead => 5,
        State::Erased => 6,
    }
}

fn state_of(code: u8) -> Result<State> {
    Ok(match code {
        1 => State::Open,
        2 => State::InProgress,
        3 => State::Completed,
        4 => State::Unknown,
        5 => State::Dead,
        6 => State::Erased,
        _ => return Err(corrupt("unknown state")),
    })
}

fn corrupt(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("record: {why}; the bytes were not written by semel"))
}

#[cfg(test)]
mod tests;
