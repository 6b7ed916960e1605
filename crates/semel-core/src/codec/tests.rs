//! Tests of the codec: an encoded record decodes to itself; any other bytes are an error and never a panic.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{Body, Failure, Head, Header, Outcome, Timestamp};

fn outcomes() -> impl Strategy<Value = Outcome> {
    let failure = prop::option::of((".{0,20}", ".{0,40}"));
    let header = ("[a-z-]{1,12}", prop::collection::vec(any::<u8>(), 0..20));
    let head = (
        prop::option::of(100..600u16),
        prop::option::of("[a-z/]{3,20}"),
        prop::collection::vec(header.clone(), 0..4),
        prop::collection::vec(header, 0..2),
    );
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..3000).prop_map(|bytes| Body::Kept(bytes.into())),
        (0..4000usize).prop_map(|length| Body::Kept(vec![b'x'; length].into())),
        any::<u64>().prop_map(|length| Body::Omitted { length }),
    ];
    (failure, head, body).prop_map(|(failure, (status, content_type, headers, trailers), body)| {
        let failure = failure.map(|(kind, message)| Failure { kind, message });
        let (headers, trailers) = (lines(headers), lines(trailers));
        Outcome::from_parts(failure, Head { status, content_type, headers, trailers }, body)
    })
}

fn lines(headers: Vec<(String, Vec<u8>)>) -> Vec<Header> {
    let line = |(name, value): (String, Vec<u8>)| Header { name, value: value.into() };
    headers.into_iter().map(line).collect()
}

prop_compose! {
    fn terms()(lease in 1..100_000u64, kept in any::<u32>(), hold: bool, max in any::<u32>()) -> Terms {
        Terms {
            lease: Duration::from_millis(lease).into(),
            on_lost_owner: if hold { OnLostOwner::Hold } else { OnLostOwner::Rerun },
            max_attempts: NonZeroU32::new(max),
            retention: Duration::from_millis(kept.into()).into(),
            failure_retention: Duration::from_millis(u64::from(kept) / 2).into(),
        }
    }
}

prop_compose! {
    fn records()(
        (key, fingerprint, nonce) in any::<([u8; 32], Option<[u8; 32]>, [u8; 16])>(),
        state in 1..7u8, terms in terms(), outcome in outcomes(),
        (token, attempts, dirty, abandoned, contested) in any::<(u64, u32, bool, bool, bool)>(),
        times in any::<(u64, u64, u64, Option<u64>, Option<u64>)>(),
        labels in prop::option::of(("[a-z]{1,9}", ".{0,9}", "[a-z]{1,9}", ".{1,30}")),
    ) -> Record {
        let state = state_of(state).unwrap();
        let is_in_progress = state == State::InProgress;
        Record {
            key: KeyHash::from_bytes(key), state, token, attempts, dirty, abandoned, terms,
            contested: is_in_progress && contested,
            fingerprint: fingerprint.map(Fingerprint::from_stored),
            nonce: Some(Nonce::from_bytes(nonce)),
            claimed_at: Timestamp::from_millis(times.0),
            lease_until: Timestamp::from_millis(times.1),
            created_at: Timestamp::from_millis(times.2),
            completed_at: times.3.filter(|_| !is_in_progress).map(Timestamp::from_millis),
            expires_at: times.4.map(Timestamp::from_millis),
            outcome: (state == State::Completed).then(|| Arc::new(outcome)),
            labels: labels.map(|(n, p, o, i)| Labels::new(&n, &p, &o, &i)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_record_decodes_to_itself(record in records()) {
        prop_assert_eq!(decode(&encode(&record)).unwrap(), record);
    }

    #[test]
    fn random_bytes_are_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode(&bytes.into());
    }

    #[test]
    fn random_bytes_after_a_valid_start_never_panic(
        state in 1..7u8, flags in 0..=flag::ALL, rest in prop::collection::vec(any::<u8>(), 160..900),
    ) {
        let mut bytes = vec![FORMAT_VERSION, state];
        bytes.extend(flags.to_be_bytes());
        bytes.extend(rest);
        let _ = decode(&bytes.into());
    }

    #[test]
    fn a_damaged_record_is_an_error_or_a_record(
        record in records(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..6),
    ) {
        let mut bytes = encode(&record).to_vec();
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        if let Ok(read) = decode(&bytes.into()) {
            // A record that is accepted must encode again.
            prop_assert_eq!(decode(&encode(&read)).unwrap(), read);
        }
    }

    #[test]
    fn a_record_cut_short_is_an_error(record in records(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&record);
        prop_assert!(decode(&bytes.slice(..at.index(bytes.len()))).is_err());
    }
}

fn sample(body: Vec<u8>) -> Record {
    let outcome = Arc::new(Outcome::success(body));
    Record {
        key: KeyHash::from_bytes([1; 32]),
        state: State::Completed,
        fingerprint: None,
        nonce: None,
        token: 7,
        attempts: 2,
        dirty: false,
        abandoned: false,
        contested: false,
        claimed_at: Timestamp::default(),
        lease_until: Timestamp::default(),
        terms: Terms {
            lease: Duration::from_secs(30).into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: Duration::from_secs(1).into(),
            failure_retention: Duration::from_secs(1).into(),
        },
        created_at: Timestamp::default(),
        completed_at: None,
        expires_at: None,
        outcome: Some(outcome),
        labels: None,
    }
}

#[test]
fn a_newer_format_is_a_clear_error() {
    let mut bytes = encode(&sample(vec![])).to_vec();
    bytes[0] = FORMAT_VERSION + 1;
    let error = decode(&bytes.into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("upgrade this node first"), "{error}");
}

#[test]
fn the_offsets_of_the_head_do_not_change() {
    let mut record = sample(vec![]);
    record.nonce = Some(Nonce::from_bytes([9; 16]));
    let bytes = encode(&record);
    assert_eq!(bytes[1], state_code(State::Completed));
    assert_eq!(bytes[4..36], [1; 32]);
    assert_eq!(bytes[68..84], [9; 16]);
    assert_eq!(bytes[84..92], 7u64.to_be_bytes());
    assert_eq!(bytes[92..96], 2u32.to_be_bytes());
    assert_eq!(bytes[124..132], 1000u64.to_be_bytes());
}

#[test]
fn a_large_outcome_is_compressed() {
    let bytes = encode(&sample(vec![b'a'; 100_000]));
    assert!(bytes.len() < 1_000, "{} bytes", bytes.len());
    assert_eq!(decode(&bytes).unwrap(), sample(vec![b'a'; 100_000]));
}

#[test]
fn a_decompression_bomb_is_refused_before_it_is_decompressed() {
    let mut bytes = encode(&sample(vec![b'a'; 100_000])).to_vec();
    let declared = HEAD_BYTES + 1; // The packed outcome is short: its length takes one byte.
    bytes[declared..declared + 8].copy_from_slice(&u64::MAX.to_be_bytes());
    let error = decode(&bytes.into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_completed_record_without_its_outcome_is_refused() {
    let record = Record { outcome: None, ..sample(vec![]) };
    assert_eq!(decode(&encode(&record)).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn the_encoded_length_is_exact() {
    for length in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
        let (bytes, mut out) = (vec![0; length], wire::WireWriter::with_capacity(0));
        out.bytes(&bytes);
        assert_eq!(wire::encoded_len(&bytes), out.finish().len(), "{length}");
    }
}
