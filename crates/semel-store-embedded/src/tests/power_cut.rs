//! Power cuts: at every sync of a run, and the run goes on from what they leave.

use std::{collections::BTreeSet, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use semel_core::{AbandonRequest, Claim, ManualClock, RenewRequest, State};

use super::{
    simulated_disk::{Keeps, SimulatedDisk},
    test_store::{Dump, TestStore, key_of},
};
use crate::{disk::Disk, log::name_of, request::WriterRequest};

/// Runs this many calls with power cuts. Returns at how many syncs the power was cut, and how many segments were given
/// up.
fn run(seed: u64, calls: usize) -> (u64, u32) {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut rng = StdRng::seed_from_u64(seed);
    disk.take_images(seed);
    let mut bench = TestStore::open(&disk, &clock, seed).unwrap();
    check(&disk.images(), &clock, &Dump::new(), &Dump::new(), seed);
    let (mut done, mut syncs) = (0, 0);
    while done < calls {
        let batch = match rng.random_range(0..10) {
            0 => vec![WriterRequest::Purge(rng.random_range(1..50))],
            _ => bench.random_calls(8),
        };
        done += batch.len();
        let before = bench.dump();
        bench.work(batch);
        let after = bench.dump();
        check(&bench.disk.images(), &clock, &before, &after, seed);
        clock.advance(Duration::from_millis(rng.random_range(0..1_000)));
        if rng.random_ratio(1, 10) {
            syncs += bench.disk.syncs();
            bench = after_cut(bench, &mut rng, seed);
        }
    }
    (syncs + bench.disk.syncs(), bench.store.segments.first() - 1)
}

/// Opens every disk that a cut would have left: it holds all that was acknowledged before the batch,
/// and either all of the batch or nothing of it.
fn check(images: &[SimulatedDisk], clock: &ManualClock, before: &Dump, after: &Dump, seed: u64) {
    for (n, image) in images.iter().enumerate() {
        let found =
            TestStore::open(image, clock, seed).unwrap_or_else(|e| panic!("seed {seed}, {n}: {e}"));
        let found = found.dump();
        assert!(
            found == *before || found == *after,
            "seed {seed}, image {n}\nagainst before: {}\nagainst after: {}",
            differences(&found, before),
            differences(&found, after)
        );
    }
    if let Some(image) = images.first() {
        misses_its_newest_segment(image, clock, seed);
    }
}

/// Whatever a cut leaves, a segment with batches that is taken away from it is missed.
fn misses_its_newest_segment(image: &SimulatedDisk, clock: &ManualClock, seed: u64) {
    let bench = TestStore::open(image, clock, seed).unwrap();
    let newest = name_of(bench.store.writer.log.active());
    drop(bench);
    image.remove(&newest).unwrap();
    let error = TestStore::open(image, clock, seed).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains(&newest), "seed {seed}: {error}");
}

fn differences(found: &Dump, expected: &Dump) -> String {
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differ = keys.into_iter().filter(|key| found.get(*key) != expected.get(*key));
    differ.map(|key| format!("\n{:?}\nis {:?}", expected.get(key), found.get(key))).collect()
}

/// Cuts the power now. The run continues with what is on the disk.
fn after_cut(bench: TestStore, rng: &mut StdRng, seed: u64) -> TestStore {
    let after = bench.dump();
    let image = bench.disk.cut(Keeps::Anything(rng.random()));
    image.take_images(rng.random());
    let next = bench.reopen(&image).unwrap();
    assert_eq!(next.dump(), after, "seed {seed}: everything was acknowledged");
    image.images();
    next
}

#[test]
fn a_power_cut_at_any_sync_of_a_thousand_calls_loses_nothing_acknowledged() {
    // Few runs of a thousand calls give a segment up.
    let runs = [1, 16].map(|seed| run(seed, 1_000));
    let (syncs, trimmed) = runs.iter().fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    println!("power cut at {syncs} syncs, five ways each; {trimmed} segments were given up");
    assert!(syncs > 100 && trimmed > 0, "only {syncs} syncs and {trimmed} segments");
}

#[test]
fn other_runs_survive_power_cuts_too() {
    let syncs: u64 = (2..8).map(|seed| run(seed, 300).0).sum();
    assert!(syncs > 200, "only {syncs} syncs");
}

#[test]
fn what_a_killed_process_wrote_is_durable_before_it_is_answered_with() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    bench.own(1);
    // The kill comes between write and sync: the system still has the bytes.
    disk.set(super::simulated_disk::Faults { syncs_fail: true, ..Default::default() });
    bench.claim(2).unwrap_err();
    disk.set(super::simulated_disk::Faults::default());
    let reopened = TestStore::open(&disk, &clock, 1).unwrap();
    assert!(reopened.dump().contains_key(&key_of(2)), "the bytes were all there");
    let image = disk.cut(Keeps::Nothing);
    assert_eq!(TestStore::open(&image, &clock, 1).unwrap().dump(), reopened.dump());
}

#[test]
fn owners_of_an_earlier_process_are_lost_at_once_and_keep_their_attempts() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    bench.own(1);
    assert!(matches!(bench.claim(1), Ok(Claim::Busy { .. })));
    let mut bench = bench.reopen(&disk).unwrap();
    let Ok(Claim::Granted(lease)) = bench.claim(1) else { panic!("granted") };
    assert_eq!((lease.attempt, lease.owner.token, lease.takeover), (2, 2, true));
    assert_eq!(bench.dump()[&key_of(1)].state, State::InProgress);
}

#[test]
fn a_claim_that_expired_does_not_come_back() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    bench.own(1);
    clock.advance(Duration::from_secs(60));
    bench.work(vec![WriterRequest::Purge(10)]);
    let bench = bench.reopen(&disk).unwrap();
    assert!(bench.dump().is_empty());
}

#[test]
fn restarts_do_not_prolong_a_lost_claim() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    bench.own(1);
    for _ in 0..20 {
        clock.advance(Duration::from_secs(15));
        bench = bench.reopen(&disk).unwrap();
    }
    assert_eq!(bench.store.index.counts().records, 0, "its retention is 20 s");
}

#[test]
fn a_claim_that_was_renewed_for_long_is_there_after_a_restart() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    let owner = bench.own(1);
    for _ in 0..100 {
        clock.advance(Duration::from_millis(500));
        let max_run = Duration::from_secs(600);
        bench
            .work(vec![WriterRequest::Renew(RenewRequest::new(owner, max_run))])
            .remove(0)
            .unwrap();
    }
    clock.advance(Duration::from_secs(17));
    let mut bench = bench.reopen(&disk).unwrap();
    let Ok(Claim::Granted(lease)) = bench.claim(1) else { panic!("its retention is 20 s") };
    assert_eq!(lease.attempt, 2);
}

#[test]
fn a_backoff_outlives_a_restart() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    let owner = bench.own(1);
    let abandon = AbandonRequest { owner, backoff: Duration::from_secs(10) };
    bench.work(vec![WriterRequest::Abandon(abandon)]).remove(0).unwrap();
    let mut bench = bench.reopen(&disk).unwrap();
    assert!(matches!(bench.claim(1), Ok(Claim::Busy { .. })));
    clock.advance(Duration::from_secs(10));
    assert!(matches!(bench.claim(1), Ok(Claim::Granted(_))));
}
