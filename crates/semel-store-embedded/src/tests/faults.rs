//! Full and failing disks: nothing is acknowledged, nothing is damaged, and it goes on after.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, ErrorKind, Forgetting, ManualClock, Nonce,
    OnLostOwner, Outcome, Owner, RenewRequest, Renewal,
};

use super::{
    simulated_disk::{CUTS, Faults, Keeps, SimulatedDisk},
    test_store::{SEGMENT, TestStore, key_of},
};
use crate::{
    disk::Disk,
    folder_watch::FolderState,
    log::Filling,
    request::{WriterReply, WriterRequest},
};

fn opened() -> (SimulatedDisk, ManualClock, TestStore) {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let bench = TestStore::open(&disk, &clock, 1).unwrap();
    (disk, clock, bench)
}

fn is_recorded(said: &WriterReply) -> bool {
    matches!(said, WriterReply::Complete(Completion::Recorded))
}

/// Claims keys until the disk is full, and returns their owners.
fn fill(bench: &mut TestStore) -> Vec<Owner> {
    let mut owners = Vec::new();
    for key in 0..10_000 {
        match bench.claim(key) {
            Ok(Claim::Granted(lease)) => owners.push(lease.owner),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                return owners;
            }
            Ok(answer) => panic!("{answer:?}"),
        }
    }
    panic!("the disk never filled up");
}

#[test]
fn on_a_full_disk_claims_are_refused_while_owners_still_record() {
    let (disk, _, mut bench) = opened();
    disk.set(Faults { space: Some(disk.used() + 1000), ..Faults::default() });
    let owners = fill(&mut bench);
    assert!(owners.len() > 50, "{}", owners.len());
    for owner in owners.iter().rev().take(8) {
        assert!(is_recorded(&bench.complete(*owner, 100).unwrap()));
    }
    assert!(matches!(bench.claim(0), Ok(Claim::Busy { .. })), "reading needs no space");
    let before = bench.dump();
    let mut bench = bench.reopen(&disk).unwrap();
    assert_eq!(bench.dump(), before);
    bench.claim(20_000).unwrap_err();
    disk.set(Faults::default());
    bench.own(20_000);
    assert_eq!(bench.dump().len(), before.len() + 1);
}

#[test]
fn freed_disk_space_is_used_without_reopening() {
    let (disk, _, mut bench) = opened();
    disk.set(Faults { space: Some(disk.used() + 1000), ..Faults::default() });
    fill(&mut bench);
    disk.set(Faults::default());
    for key in 20_000..21_000 {
        bench.own(key);
    }
}

#[test]
fn a_claim_whose_sync_failed_is_not_shown_and_not_granted() {
    let (disk, clock, mut bench) = opened();
    bench.own(1);
    for faults in [
        Faults { syncs_fail: true, ..Faults::default() },
        Faults { writes_fail: true, ..Faults::default() },
    ] {
        disk.set(faults);
        let error = bench.claim(2).unwrap_err();
        assert!(error.kind().is_indefinite(), "{error}");
        assert_eq!(bench.dump().len(), 1);
        disk.set(Faults::default());
    }
    bench.own(3);
    let before = bench.dump();
    assert!(!before.contains_key(&key_of(2)));
    for keeps in CUTS {
        assert_eq!(TestStore::open(&disk.cut(keeps), &clock, 1).unwrap().dump(), before);
    }
}

#[test]
fn a_failed_batch_does_not_mix_with_the_batch_that_overwrites_it() {
    for seed in 0..50 {
        let (disk, clock, mut bench) = opened();
        let claims = |first: u64| {
            let claims =
                (first..first + 20).map(|key| super::test_store::claim(key, OnLostOwner::Hold));
            claims.map(WriterRequest::Claim).collect::<Vec<_>>()
        };
        disk.set(Faults { syncs_fail: true, ..Faults::default() });
        // So many syncs that another part reaches the disk each time.
        for _ in 0..=seed {
            assert!(bench.work(claims(0)).iter().all(Result::is_err));
        }
        disk.set(Faults::default());
        disk.take_images(seed);
        assert!(bench.work(claims(100)).iter().all(Result::is_ok));
        for image in disk.images() {
            let found = TestStore::open(&image, &clock, seed).unwrap().dump();
            let old = (0..20).filter(|n| found.contains_key(&key_of(*n))).count();
            let new = found.len() - old;
            assert!(matches!((old, new), (0 | 20, 0) | (0, 20)), "{old} and {new}, seed {seed}");
        }
    }
}

#[test]
fn a_claim_in_a_segment_that_was_removed_is_not_granted() {
    let (disk, _, mut bench) = opened();
    bench.own(1);
    disk.remove("00000001.log").unwrap();
    let error = bench.claim(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("00000001.log was removed"), "{error}");
    assert_eq!(bench.dump().len(), 1);
}

/// Such as a process without a file descriptor left, or a network file system that is slow.
#[test]
fn a_failed_check_of_the_folder_does_not_count_as_a_removed_folder() {
    let (disk, _, bench) = opened();
    let (seen, segments) = (FolderState::default(), &bench.store.segments);
    let fails = |looks_fail| disk.set(Faults { looks_fail, ..Faults::default() });
    fails(true);
    seen.look(segments);
    seen.check().unwrap();
    fails(false);
    disk.remove("identity").unwrap();
    seen.look(segments);
    assert!(seen.check().unwrap_err().to_string().contains("identity was removed"));
    fails(true);
    seen.look(segments);
    seen.check().expect_err("nothing shows that it is back");
}

#[test]
fn an_outcome_whose_sync_failed_can_be_recorded_again() {
    let (disk, clock, mut bench) = opened();
    let owner = bench.own(1);
    disk.set(Faults { syncs_fail: true, ..Faults::default() });
    bench.complete(owner, 700).unwrap_err();
    disk.set(Faults::default());
    assert!(is_recorded(&bench.complete(owner, 10).unwrap()));
    let before = bench.dump();
    let image = disk.cut(Keeps::Nothing);
    assert_eq!(TestStore::open(&image, &clock, 1).unwrap().dump(), before);
}

#[test]
fn a_lease_is_renewed_although_the_disk_fails() {
    let (disk, clock, mut bench) = opened();
    let owner = bench.own(1);
    disk.set(Faults { syncs_fail: true, writes_fail: true, ..Faults::default() });
    let max_run = Duration::from_secs(60);
    let renew = WriterRequest::Renew(RenewRequest::new(owner, max_run));
    let claim = WriterRequest::Claim(super::test_store::claim(2, OnLostOwner::Hold));
    clock.advance(Duration::from_millis(900));
    let answers = bench.work(vec![claim, renew]);
    assert!(answers[0].is_err());
    assert!(matches!(answers[1], Ok(WriterReply::Renew(Renewal::Extended))));
    clock.advance(Duration::from_millis(900));
    assert!(matches!(bench.claim(1), Ok(Claim::Busy { .. })));
}

/// The disk stalled for longer than the lease. Another caller's claim waits in the queue before the owner's steps.
#[test]
fn a_claim_that_was_queued_before_the_steps_of_a_living_owner_takes_nothing_over() {
    for on_lost_owner in [OnLostOwner::Rerun, OnLostOwner::Hold] {
        let (_, clock, mut bench) = opened();
        let claim = |nonce| {
            let claim = super::test_store::claim(1, on_lost_owner);
            WriterRequest::Claim(ClaimRequest { nonce, ..claim })
        };
        let nonce = Nonce::random();
        bench.work(vec![claim(nonce)]).remove(0).unwrap();
        let owner = Owner { key: key_of(1), nonce, token: 1 };
        let renew = || WriterRequest::Renew(RenewRequest::new(owner, Duration::from_secs(60)));
        let outcome = Arc::new(Outcome::success("done"));
        for step in [renew(), WriterRequest::Complete(CompleteRequest { owner, outcome })] {
            clock.advance(Duration::from_secs(2));
            let replies = bench.work(vec![claim(Nonce::random()), step]);
            let [overtaking, own] = &replies[..] else { panic!("{replies:?}") };
            assert!(
                matches!(overtaking, Ok(WriterReply::Claim(Claim::Busy { .. }))),
                "{replies:?}"
            );
            let is_accepted = matches!(
                own,
                Ok(WriterReply::Renew(Renewal::Extended)
                    | WriterReply::Complete(Completion::Recorded))
            );
            assert!(is_accepted, "{replies:?}");
        }
    }
}

#[test]
fn a_renewal_counts_although_the_completion_beside_it_failed() {
    let (disk, clock, mut bench) = opened();
    let owner = bench.own(1);
    clock.advance(Duration::from_millis(900));
    disk.set(Faults { syncs_fail: true, ..Faults::default() });
    let renew = WriterRequest::Renew(RenewRequest::new(owner, Duration::from_secs(60)));
    let outcome = Arc::new(Outcome::success("done"));
    let answers =
        bench.work(vec![renew, WriterRequest::Complete(CompleteRequest { owner, outcome })]);
    assert!(
        matches!(answers[..], [Ok(WriterReply::Renew(Renewal::Extended)), Err(_)]),
        "{answers:?}"
    );
    clock.advance(Duration::from_millis(200));
    assert!(matches!(bench.claim(1), Ok(Claim::Busy { .. })));
}

#[test]
fn reserved_capacity_is_for_owners_also_while_the_spare_is_filled() {
    for filling in [Filling::Inline, Filling::Ahead] {
        let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
        let mut bench = TestStore::open_filling(&disk, &clock, SEGMENT, filling).unwrap();
        // The first spare may still be on its way; it is used up first.
        let mut owners: Vec<Owner> = (0..200).map(|key| bench.own(key)).collect();
        disk.set(Faults { space: Some(0), ..Faults::default() });
        let claimed = (1_000..20_000).filter_map(|key| match bench.claim(key) {
            Ok(Claim::Granted(lease)) => Some(lease.owner),
            _ => None,
        });
        owners.extend(claimed.collect::<Vec<_>>());
        for owner in owners.iter().rev().take(8) {
            let said = bench.complete(*owner, 100);
            assert!(matches!(said, Ok(ref said) if is_recorded(said)), "{filling:?}: {said:?}");
        }
        // One that is too large for what is left does not open the reserve to claims.
        bench.complete(owners[0], 7_000).unwrap_err();
        bench.claim(30_000).unwrap_err();
    }
}

#[test]
fn a_repeated_claim_needs_no_disk_space() {
    let (disk, _, mut bench) = opened();
    let mine = super::test_store::claim(90_000, OnLostOwner::Rerun);
    bench.work(vec![WriterRequest::Claim(mine.clone())]).remove(0).unwrap();
    disk.set(Faults { space: Some(disk.used() + 1000), ..Faults::default() });
    fill(&mut bench);
    let again = bench.work(vec![WriterRequest::Claim(mine)]).remove(0);
    assert!(matches!(again, Ok(WriterReply::Claim(Claim::Granted(_)))), "{again:?}");
}

#[test]
fn after_a_failed_header_no_batch_goes_to_the_previous_segment() {
    let (disk, clock, mut bench) = opened();
    // Up to the last claim that fits the first segment.
    let fits = {
        let mut other = TestStore::open(&SimulatedDisk::default(), &clock, 1).unwrap();
        (0..).find(|key| {
            other.own(*key);
            other.store.writer.log.active() == 2
        })
    };
    for key in 0..fits.unwrap() - 1 {
        bench.own(key);
    }
    disk.set(Faults { syncs_fail: true, ..Faults::default() });
    let ten = (1_000..1_010).map(|key| super::test_store::claim(key, OnLostOwner::Hold));
    assert!(bench.work(ten.map(WriterRequest::Claim).collect()).iter().all(Result::is_err));
    disk.set(Faults::default());
    bench.own(5_000);
    let before = bench.dump();
    assert_eq!(bench.reopen(&disk).unwrap().dump(), before);
}

#[test]
fn a_batch_whose_sync_failed_is_written_again_at_opening() {
    let (disk, clock, mut bench) = opened();
    bench.own(1);
    disk.set(Faults { syncs_fail: true, ..Faults::default() });
    let many = (100..115).map(|key| super::test_store::claim(key, OnLostOwner::Hold));
    assert!(bench.work(many.map(WriterRequest::Claim).collect()).iter().all(Result::is_err));
    disk.set(Faults::default());
    let mut bench = bench.reopen(&disk).unwrap();
    bench.own(2);
    let before = bench.dump();
    assert_eq!(before.len(), 17, "the process was killed; the system still had the bytes");
    let image = disk.cut(Keeps::Nothing);
    assert_eq!(TestStore::open(&image, &clock, 1).unwrap().dump(), before);
}

#[test]
fn a_segment_that_could_not_be_lengthened_is_not_used() {
    const SEGMENTS: u64 = 16 << 20;
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open_with(&disk, &clock, SEGMENTS).unwrap();
    let owner = bench.own(1);
    disk.set(Faults { space: Some(disk.used() + SEGMENT), ..Faults::default() });
    bench.complete(owner, 3 << 20).unwrap_err();
    disk.set(Faults::default());
    disk.take_images(1);
    for first in (1_000..).step_by(1_000) {
        let claims =
            (first..first + 1_000).map(|key| super::test_store::claim(key, OnLostOwner::Rerun));
        bench.work(claims.map(WriterRequest::Claim).collect());
        if bench.store.writer.log.active() > 1 {
            break;
        }
        disk.images();
    }
    for image in disk.images() {
        TestStore::open_with(&image, &clock, SEGMENTS).unwrap();
    }
}

#[test]
fn a_file_that_could_not_be_removed_is_removed_at_the_next_opening() {
    let (disk, clock, mut bench) = opened();
    disk.set(Faults { first_stays: true, ..Faults::default() });
    for key in 0..600 {
        bench.own(key);
    }
    clock.advance(Duration::from_secs(60));
    bench.work(vec![WriterRequest::Purge(1_000)]);
    disk.set(Faults::default());
    assert!(disk.list().unwrap().contains(&"00000001.log".to_owned()));
    assert!(!disk.list().unwrap().contains(&"00000002.log".to_owned()));
    bench.reopen(&disk).unwrap();
    assert!(!disk.list().unwrap().contains(&"00000001.log".to_owned()));
}

#[test]
fn files_that_were_given_up_may_come_back_in_any_order() {
    let (disk, clock, mut bench) = opened();
    for key in 0..300 {
        let owner = bench.own(key);
        bench.complete(owner, 500).unwrap();
    }
    clock.advance(Duration::from_secs(60));
    bench.work(vec![WriterRequest::Purge(1_000)]);
    for seed in 0..50 {
        TestStore::open(&disk.cut(Keeps::Anything(seed)), &clock, 1).unwrap();
    }
}

#[test]
fn a_damaged_record_can_be_forgotten_and_does_not_block_other_keys() {
    let (disk, _, mut bench) = opened();
    let owner = bench.own(1);
    bench.complete(owner, 100).unwrap();
    let location = bench.store.index.look(&key_of(1), |slot| slot.unwrap().location);
    disk.tamper("00000001.log", |bytes| bytes[location.extent.offset as usize + 170] ^= 1);
    for key in 10..200 {
        bench.own(key);
    }
    let error = bench.work(vec![WriterRequest::Erase(key_of(1))]).remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let said = bench.work(vec![WriterRequest::Forget(key_of(1))]).remove(0);
    assert!(matches!(said, Ok(WriterReply::Forget(Forgetting::Forgotten))), "{said:?}");
    assert!(matches!(bench.claim(1), Ok(Claim::Granted(_))));
}

/// Faults, restarts, power cuts and other lengths of segments, in any order.
#[test]
fn random_faults_damage_nothing() {
    for seed in 0..40 {
        chaos_run(seed);
    }
}

fn chaos_run(seed: u64) {
    let (mut disk, clock, mut bench) = opened();
    let mut rng = StdRng::seed_from_u64(seed);
    for step in 0..120 {
        let space = rng.random_ratio(1, 5).then(|| disk.used() + rng.random_range(0..40_000));
        let (syncs_fail, writes_fail) = (rng.random_ratio(1, 5), rng.random_ratio(1, 8));
        let first_stays = rng.random();
        disk.set(Faults { space, syncs_fail, writes_fail, first_stays, ..Faults::default() });
        let calls = match rng.random_range(0..12) {
            0 => vec![WriterRequest::Purge(rng.random_range(0..60))],
            1 => bench.random_calls(60),
            _ => bench.random_calls(6),
        };
        bench.work(calls);
        clock.advance(Duration::from_millis(rng.random_range(0..1_500)));
        if rng.random_ratio(1, 4) {
            disk.set(Faults::default());
            // After one good batch nothing that failed can come back.
            bench.own(rng.random_range(1_000..1_000_000));
            let before = bench.dump();
            disk = match rng.random_range(0..4) {
                0 => disk,
                1 => disk.cut(Keeps::Nothing),
                2 => disk.cut(Keeps::Names),
                _ => disk.cut(Keeps::Anything(rng.random())),
            };
            let segment = SEGMENT * [1, 1, 2, 8][rng.random_range(0..4)];
            let reopened = bench.reopen_with(&disk, segment);
            bench = reopened.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            assert_eq!(bench.dump(), before, "seed {seed}, step {step}");
        }
    }
}
