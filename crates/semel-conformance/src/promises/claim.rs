//! T1, T4, T5b: which claim is granted, and how the others are answered.

use std::time::Duration;

use semel_core::{Claim, Effect, KeyHash, Labels, Replay, Span, State, Store};

use crate::{
    LEASE, RETENTION, Time,
    operation::{LONG, TestOperation, expect_ok, success},
};

/// The first claim of a key is granted: token 1, attempt 1, the claimant's own lease.
pub async fn a_first_claim_is_granted(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let request = operation.request();
    let Claim::Granted(lease) = expect_ok("claim", store.claim(&request).await) else {
        panic!("the first claim of a key was not granted");
    };
    assert_eq!(lease.owner.key, request.key, "a lease names its key");
    assert_eq!(lease.owner.nonce, request.nonce, "a lease names the claim it answers");
    assert_eq!((lease.owner.token, lease.attempt), (1, 1), "the first grant is number one");
    assert_eq!(
        Span::from(lease.length),
        request.terms.lease,
        "the lease is as long as the claim requested"
    );
    assert!(!lease.takeover, "a first claim is no takeover");
}

/// A grant is written as a whole record.
pub async fn a_first_claim_writes_the_record(store: &dyn Store, _: &dyn Time) {
    let operation =
        TestOperation::new(store).cap(7).labels(Labels::new("ns", "me", "charge", "order-42"));
    let owner = operation.owned().await;
    let record = operation.record().await;
    assert_eq!(record.key, operation.key, "the record is of another key");
    assert_eq!(record.state, State::InProgress, "a granted key is in progress");
    assert_eq!(
        record.fingerprint,
        Some(operation.fingerprint),
        "the fingerprint of the request is pinned"
    );
    assert_eq!((record.nonce, record.token), (Some(owner.nonce), 1), "the owner's pair is kept");
    assert_eq!(record.attempts, 1, "a grant counts as an attempt");
    assert!(!record.dirty && !record.abandoned, "nothing has ended yet");
    assert_eq!(record.terms, operation.terms, "the first claimant's terms are in force");
    assert_eq!(record.labels, operation.labels, "labels come back as they were given");
    assert_eq!((record.completed_at, record.outcome), (None, None), "nothing is done yet");
}

/// The times of a first grant follow from the claimant's terms.
pub async fn a_first_claim_sets_the_times(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.owned().await;
    let sighting =
        expect_ok("get", store.get(&operation.key).await).expect("a granted key has a record");
    let record = sighting.record;
    assert_eq!(record.created_at, record.claimed_at, "made and granted in one step");
    assert!(record.claimed_at <= sighting.at, "a claim is not in the future");
    assert!(sighting.at.since(record.claimed_at) < LONG / 2, "claimed_at is store time");
    assert!(record.lease_until > sighting.at, "a fresh lease is live");
    assert!(record.lease_until <= sighting.at.after(LONG), "a lease is not longer than requested");
    let expires_at = record.expires_at.expect("under Rerun a claim expires");
    assert!(expires_at > record.lease_until, "a claim outlives its lease by the retention");
}

/// While a lease runs, another claim is answered with its remaining time.
pub async fn a_live_lease_answers_busy(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.owned().await;
    let before = operation.record().await;
    let Claim::Busy { remaining } = operation.claim().await else {
        panic!("a key with a live lease was not busy");
    };
    assert!(remaining > LONG / 2 && remaining <= LONG, "busy for the owner's lease, {remaining:?}");
    operation.assert_unchanged(&before, "a busy answer changes nothing").await;
}

/// A token rises with every release and takeover, and never falls while its record exists.
pub async fn a_token_rises_with_every_grant(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    for expected in 1..=4 {
        let lease = operation.granted().await;
        assert_eq!(lease.owner.token, expected, "every grant has the next token");
        assert_eq!(u64::from(lease.attempt), expected, "every grant is the next attempt");
        if expected % 2 == 0 {
            operation.release(lease.owner, Effect::None).await;
        } else {
            operation.abandon(lease.owner, Duration::ZERO).await;
        }
    }
}

/// A completed key replays its outcome to every claim.
pub async fn a_completed_key_replays(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.completed(&success("done")).await;
    let before = operation.record().await;
    for claim in [operation.claim().await, operation.claim().await, operation.claim_as(owner).await]
    {
        let Claim::Replay(Replay { outcome, attempt, age, remaining, .. }) = claim else {
            panic!("a completed key was answered {claim:?}, not its outcome");
        };
        assert_eq!(*outcome, *success("done"), "the outcome that was recorded is replayed");
        assert_eq!(attempt, 1, "a replay says which attempt produced it");
        assert!(age < LONG, "a replay says how old it is, not {age:?}");
        let kept = operation.terms.retention.to_duration();
        assert!(
            remaining <= kept && !remaining.is_zero(),
            "the outcome is kept for another {remaining:?}"
        );
    }
    operation.assert_unchanged(&before, "a replay changes nothing").await;
}

/// The age of a replay is the time since the outcome was recorded, not since the claim.
pub async fn a_replay_has_its_age(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    time.pass(RETENTION).await;
    operation.complete(owner, &success("done")).await;
    let age = async || match operation.claim().await {
        Claim::Replay(replay) => replay.age,
        claim => panic!("a completed key was answered {claim:?}, not its outcome"),
    };
    let young = age().await;
    assert!(young < RETENTION, "recorded a moment ago, not {young:?}");
    time.pass(LEASE).await;
    let old = age().await;
    assert!(old >= LEASE / 2 && old < LONG / 2, "recorded about {LEASE:?} ago, not {old:?}");
}

/// An unknown key stays unknown for every claim, including late copies of its former owner's claim.
pub async fn an_unknown_key_stays_unknown(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    let owner = operation.unknown().await;
    let before = operation.record().await;
    assert_eq!(operation.claim().await, Claim::Unknown, "an unknown key does not run again");
    assert_eq!(operation.claim_as(owner).await, Claim::Unknown, "not even its former owner");
    operation.assert_unchanged(&before, "an Unknown answer changes nothing").await;
}

/// A dead key stays dead for every claim, whatever its cap is.
pub async fn a_dead_key_stays_dead(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(1);
    let owner = operation.dead().await;
    let before = operation.record().await;
    assert_eq!(operation.claim().await, Claim::Dead, "a dead key was revived");
    assert_eq!(operation.clone().cap(9).claim().await, Claim::Dead, "a contender's cap was used");
    assert_eq!(operation.claim_as(owner).await, Claim::Dead, "a late copy revived a dead key");
    operation.assert_unchanged(&before, "a Dead answer changes nothing").await;
}

/// Below the cap a released key is granted; at the cap it is dead.
pub async fn attempts_end_at_the_cap(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(2);
    operation.released(Effect::Possible).await;
    let second = operation.granted().await;
    assert_eq!(second.attempt, 2, "the cap is the number of attempts");
    operation.release(second.owner, Effect::None).await;
    assert_eq!(operation.claim().await, Claim::Dead, "granted beyond the cap");
    let dead = operation.record().await;
    assert_eq!(dead.state, State::Dead, "a key that was answered Dead is Dead");
    assert_eq!((dead.token, dead.attempts), (2, 2), "no attempt, no token");
    assert_ne!(dead.nonce, Some(second.owner.nonce), "a released key has no owner");
}

/// Keys are bytes: keys that differ in case, zeros, trailing blanks or single bits are different.
pub async fn keys_that_differ_in_one_bit_are_two_keys(store: &dyn Store, _: &dyn Time) {
    let seed: [u8; 16] = rand::random();
    let tails: [&[u8; 16]; 6] = [
        b"AAAAAAAAAAAAAAAA",
        b"aaaaaaaaaaaaaaaa",
        b"AAAAAAAAAAAAAAA ",
        b"AAAAAAAAAAAAAAA\0",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"'\";--%_\\\n\r\t*.>\xff\x80",
    ];
    for tail in tails {
        for bytes in [[seed, *tail], [*tail, seed]] {
            let key = KeyHash::from_bytes(bytes.concat().try_into().expect("16 + 16 is 32"));
            let operation = TestOperation::new(store).key(key);
            assert_eq!(operation.granted().await.owner.token, 1, "two keys share one record");
            assert_eq!(operation.record().await.key, key, "a record came back under another key");
        }
    }
}

/// The first and the last possible key work like any other.
pub async fn extreme_keys_work(store: &dyn Store, _: &dyn Time) {
    for byte in [0x00, 0xff] {
        // These two keys are shared by every run of this promise on one server.
        let operation = TestOperation::new(store)
            .key(KeyHash::from_bytes([byte; 32]))
            .lease(LEASE)
            .retention(RETENTION);
        let claim = operation.claim().await;
        assert!(
            matches!(claim, Claim::Granted(_) | Claim::Busy { .. } | Claim::Replay(_)),
            "a claim of an extreme key was answered {claim:?}"
        );
        if let Claim::Granted(lease) = claim {
            operation.complete(lease.owner, &success("extreme")).await;
        }
        if let Some(record) = operation.get().await {
            assert_eq!(record.key, operation.key, "a record came back under another key");
        }
    }
}
