//! Compaction is given back, and nothing that is needed with it.

use std::{sync::Arc, time::Duration};

use semel_core::{
    CompleteRequest, Decision, ErrorKind, ManualClock, OnLostOwner, Outcome, Owner, Purged,
    ResolveRequest,
};

use super::{
    simulated_disk::SimulatedDisk,
    test_store::{SEGMENT, TestStore, claim, key_of},
};
use crate::{
    compaction::Compaction,
    disk::Disk,
    request::{WriterReply, WriterRequest},
};

#[test]
fn a_segment_is_given_up_when_its_records_have_expired() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    for key in 0..2_000 {
        let owner = bench.own(key);
        bench.complete(owner, 300).unwrap();
        clock.advance(Duration::from_millis(200));
        bench.work(vec![WriterRequest::Purge(10)]);
    }
    // 100 of them are retained, at about a kilobyte each.
    assert!(disk.used() < 6 * SEGMENT, "{} bytes", disk.used());
    assert_eq!(bench.reopen(&disk).unwrap().dump().len(), 99);
}

#[test]
fn records_that_do_not_expire_are_moved_to_the_end_of_the_log() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    bench.work(vec![WriterRequest::Claim(claim(77_777, OnLostOwner::Hold))]);
    for key in 0..2_000 {
        let owner = bench.own(key);
        bench.complete(owner, 300).unwrap();
        clock.advance(Duration::from_millis(200));
        bench.work(vec![WriterRequest::Purge(10)]);
    }
    assert!(disk.used() < 10 * SEGMENT, "{} bytes", disk.used());
    assert!(bench.store.segments.first() > 2);
    assert!(bench.reopen(&disk).unwrap().dump().contains_key(&key_of(77_777)));
}

#[test]
fn an_outcome_as_large_as_promised_is_recorded() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    let largest = crate::writer::max_outcome(bench.store.writer.log.max_batch());
    for key in 0..20 {
        let owner = bench.own(key);
        bench.complete(owner, largest - 200).unwrap();
    }
    let owner = bench.own(100);
    bench.complete(owner, largest + 200).unwrap_err();
    assert_eq!(bench.reopen(&disk).unwrap().dump().len(), 21);
}

#[test]
fn a_record_larger_than_the_current_segment_setting_is_still_moved() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open_with(&disk, &clock, 16 * SEGMENT).unwrap();
    let owner = bench.own(77_777);
    bench.complete(owner, 3 * usize::try_from(SEGMENT).unwrap()).unwrap();
    let mut bench = bench.reopen(&disk).unwrap();
    let before = bench.dump();
    for key in 0..2_000 {
        let owner = bench.own(key);
        bench.complete(owner, 300).unwrap();
        bench.work(vec![WriterRequest::Forget(key_of(key))]);
    }
    assert!(bench.store.segments.first() > 2, "it was moved");
    assert_eq!(bench.reopen(&disk).unwrap().dump(), before);
}

#[test]
fn a_log_of_more_files_than_are_kept_open_is_read_and_written() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    for key in 0..3_000 {
        let owner = bench.own(key);
        bench.complete(owner, 1_500).unwrap();
    }
    assert!(disk.used() > 150 * SEGMENT);
    let before = bench.dump();
    assert_eq!(before.len(), 3_000);
    assert_eq!(bench.reopen(&disk).unwrap().dump(), before);
}

#[test]
fn more_lost_owners_than_a_segment_holds_are_put_on_hold() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    for key in 0..1_000 {
        bench.work(vec![WriterRequest::Claim(claim(key, OnLostOwner::Hold))]);
    }
    clock.advance(Duration::from_secs(2));
    bench.work(vec![WriterRequest::Purge(10_000)]).remove(0).unwrap();
    assert_eq!(bench.store.index.counts().unknown, 0, "the owners may be heard yet");
    clock.advance(Duration::from_secs(1));
    let said = bench.work(vec![WriterRequest::Purge(10_000)]).remove(0);
    let all = Purged { held: 1_000, deleted: 0 };
    assert!(matches!(said, Ok(WriterReply::Purge(purged)) if purged == all), "{said:?}");
    assert_eq!(bench.reopen(&disk).unwrap().store.index.counts().unknown, 1_000);
}

#[test]
fn a_decision_with_too_large_an_outcome_is_refused() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    let Owner { key, nonce, token } = bench.own(1);
    clock.advance(Duration::from_secs(2));
    let body: Vec<u8> = (0..2 * SEGMENT).map(|_| rand::random()).collect();
    let decision = Decision::Complete(Arc::new(Outcome::success(body)));
    let request = ResolveRequest { key, seen_nonce: Some(nonce), seen_token: token, decision };
    let error = bench.work(vec![WriterRequest::Resolve(request)]).remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn erased_content_leaves_the_disk() {
    const SECRET: &[u8] = b"what the customer wants to be gone";
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    bench.store.writer.compaction = Compaction::of(&bench.store.index);
    let owner = bench.own(1);
    let outcome = Arc::new(Outcome::success(SECRET));
    bench
        .work(vec![WriterRequest::Complete(CompleteRequest { owner, outcome })])
        .remove(0)
        .unwrap();
    let is_there = || {
        disk.list().unwrap().iter().any(|name| {
            let mut found = false;
            disk.tamper(name, |bytes| found = bytes.windows(SECRET.len()).any(|it| it == SECRET));
            found
        })
    };
    assert!(is_there());
    bench.work(vec![WriterRequest::Erase(key_of(1))]).remove(0).unwrap();
    // Until its segment is full, and then as long as it takes to go through the shards.
    for key in 10..600 {
        bench.own(key);
    }
    assert!(!is_there());
    assert!(bench.dump().contains_key(&key_of(1)), "the tombstone stays");
}
