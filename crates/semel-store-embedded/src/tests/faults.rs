//! Full and failing disks: nothing is acknowledged, nothing is damaged, and it goes on after.

use semel_core::{Claim, Completion, ErrorKind, ManualClock, OnLostOwner, Owner};

use super::{
    bench::{Bench, key_of},
    sim::{CUTS, Faults, Keeps, Sim},
};
use crate::call::{Call, Said};

fn opened() -> (Sim, ManualClock, Bench) {
    let (disk, clock) = (Sim::default(), ManualClock::new());
    let bench = Bench::open(&disk, &clock, 1).unwrap();
    (disk, clock, bench)
}

fn is_recorded(said: &Said) -> bool {
    matches!(said, Said::Complete(Completion::Recorded))
}

/// Claims until there is no space; who owns a key by then.
fn fill(bench: &mut Bench) -> Vec<Owner> {
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
fn space_that_was_freed_is_used_without_reopening() {
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
        assert_eq!(Bench::open(&disk.cut(keeps), &clock, 1).unwrap().dump(), before);
    }
}

#[test]
fn a_batch_that_failed_does_not_mix_with_the_one_in_its_place() {
    for seed in 0..50 {
        let (disk, clock, mut bench) = opened();
        let claims = |first: u64| {
            let claims = (first..first + 20).map(|key| super::bench::claim(key, OnLostOwner::Hold));
            claims.map(Call::Claim).collect::<Vec<_>>()
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
            let found = Bench::open(&image, &clock, seed).unwrap().dump();
            let old = (0..20).filter(|n| found.contains_key(&key_of(*n))).count();
            let new = found.len() - old;
            assert!(matches!((old, new), (0 | 20, 0) | (0, 20)), "{old} and {new}, seed {seed}");
        }
    }
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
    assert_eq!(Bench::open(&image, &clock, 1).unwrap().dump(), before);
}

#[test]
fn a_lease_is_renewed_although_the_disk_fails() {
    use semel_core::{RenewRequest, Renewal};
    let (disk, clock, mut bench) = opened();
    let owner = bench.own(1);
    disk.set(Faults { syncs_fail: true, writes_fail: true, ..Faults::default() });
    let max_run = std::time::Duration::from_secs(60);
    let renew = Call::Renew(RenewRequest { owner, max_run });
    let claim = Call::Claim(super::bench::claim(2, OnLostOwner::Hold));
    clock.advance(std::time::Duration::from_millis(900));
    let answers = bench.work(vec![claim, renew]);
    assert!(answers[0].is_err());
    assert!(matches!(answers[1], Ok(Said::Renew(Renewal::Extended))));
    clock.advance(std::time::Duration::from_millis(900));
    assert!(matches!(bench.claim(1), Ok(Claim::Busy { .. })));
}

#[test]
fn a_storm_of_faults_damages_nothing() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    for seed in 0..20 {
        let (disk, clock, mut bench) = opened();
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..60 {
            let space = rng.random_ratio(1, 5).then(|| disk.used() + rng.random_range(0..4096));
            let (syncs_fail, writes_fail) = (rng.random_ratio(1, 5), rng.random_ratio(1, 8));
            disk.set(Faults { space, syncs_fail, writes_fail, reads_fail: false });
            let calls = bench.random_calls(10);
            bench.work(calls);
        }
        disk.set(Faults::default());
        // After one good batch nothing that failed can come back.
        bench.own(rng.random_range(1_000..2_000));
        let before = bench.dump();
        for keeps in [Keeps::Nothing, Keeps::Everything, Keeps::Anything(seed)] {
            assert_eq!(Bench::open(&disk.cut(keeps), &clock, 1).unwrap().dump(), before, "{seed}");
        }
    }
}
