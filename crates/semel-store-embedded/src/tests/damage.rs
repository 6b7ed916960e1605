//! Recovery distinguishes damage from a torn end, and names the damaged file.

use std::time::Duration;

use semel_core::{ErrorKind, ManualClock};

use super::{
    simulated_disk::{Keeps, SimulatedDisk},
    test_store::TestStore,
};
use crate::{
    disk::Disk,
    log::{name_of, number_of},
    request::WriterRequest,
};

/// A disk with a few segments and so many keys.
fn written(keys: u64) -> (SimulatedDisk, ManualClock) {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    for key in 0..keys {
        let owner = bench.own(key);
        bench.complete(owner, 500).unwrap();
    }
    (disk, clock)
}

fn refuses(disk: &SimulatedDisk, clock: &ManualClock, what: &str) {
    let error = TestStore::open(disk, clock, 1).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

fn end_of(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap()
}

#[test]
fn of_a_torn_end_only_the_last_batch_is_gone() {
    let (disk, clock) = written(10);
    disk.tamper("00000001.log", |bytes| {
        let end = end_of(bytes);
        bytes[end - 100..].fill(0);
    });
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    let dump = bench.dump();
    assert_eq!(dump.len(), 10, "its claim is another batch");
    assert_eq!(dump.values().filter(|record| record.outcome.is_some()).count(), 9);
    bench.own(77);
    assert_eq!(bench.reopen(&disk).unwrap().dump().len(), 11);
}

#[test]
fn a_flipped_bit_anywhere_but_in_the_last_batch_is_an_error_that_names_the_file() {
    let (disk, clock) = written(10);
    let mut end = 0;
    disk.tamper("00000001.log", |bytes| end = end_of(bytes));
    for at in (64..end - 900).step_by(37) {
        let damaged = disk.cut(Keeps::Nothing);
        damaged.tamper("00000001.log", |bytes| bytes[at] ^= 1);
        refuses(&damaged, &clock, "00000001.log");
    }
}

#[test]
fn a_record_that_rots_while_the_store_is_open_is_not_answered_with() {
    let (disk, clock) = written(1);
    let bench = TestStore::open(&disk, &clock, 1).unwrap();
    disk.tamper("00000001.log", |bytes| {
        let end = end_of(bytes);
        bytes[end - 5] ^= 1;
    });
    let slot = bench.store.index.look(&super::test_store::key_of(0), |slot| slot.unwrap().location);
    let error = bench.store.segments.read(slot).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, clock) = written(300);
    let names = disk.list().unwrap();
    assert!(names.len() > 4, "{names:?}");
    for name in ["00000001.log", "00000002.log"] {
        let damaged = disk.cut(Keeps::Nothing);
        damaged.remove(name).unwrap();
        refuses(&damaged, &clock, name);
    }
}

/// The numbers of the segments on a disk. The last one is the spare, which has no batches yet.
fn numbers(disk: &SimulatedDisk) -> Vec<u32> {
    disk.list().unwrap().iter().filter_map(|name| number_of(name)).collect()
}

/// Removes segments; the folder must be refused with the name of the newest of them, and left as it is.
fn refuses_without(disk: &SimulatedDisk, clock: &ManualClock, gone: &[u32]) {
    let damaged = disk.cut(Keeps::Nothing);
    gone.iter().for_each(|number| damaged.remove(&name_of(*number)).unwrap());
    let before = damaged.list().unwrap();
    refuses(&damaged, clock, &format!("{} is missing; restore it", name_of(gone[0])));
    assert_eq!(damaged.list().unwrap(), before, "a refusal deletes nothing and makes nothing");
}

#[test]
fn a_missing_newest_segment_is_named() {
    for keys in [3, 300] {
        let (disk, clock) = written(keys);
        let numbers = numbers(&disk);
        let [.., active, spare] = numbers[..] else { panic!("{numbers:?}") };
        refuses_without(&disk, &clock, &[active]);
        refuses_without(&disk, &clock, &[spare]);
        refuses_without(&disk, &clock, &[spare, active]);
    }
}

#[test]
fn a_folder_whose_segments_are_all_gone_is_not_taken_for_a_new_one() {
    let (disk, clock) = written(300);
    let mut numbers = numbers(&disk);
    numbers.reverse();
    refuses_without(&disk, &clock, &numbers);
    let damaged = disk.cut(Keeps::Nothing);
    numbers.iter().for_each(|number| damaged.remove(&name_of(*number)).unwrap());
    damaged.remove(".segments").unwrap();
    refuses(&damaged, &clock, "has no segments; restore them");
    disk.remove("identity").unwrap();
    refuses(&disk, &clock, "identity");
}

#[test]
fn segments_that_were_given_up_are_not_missed() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    let mut bench = TestStore::open(&disk, &clock, 1).unwrap();
    for key in 0..300 {
        let owner = bench.own(key);
        bench.complete(owner, 500).unwrap();
    }
    clock.advance(Duration::from_secs(60));
    bench.work(vec![WriterRequest::Purge(1_000)]);
    assert!(numbers(&disk)[0] > 2, "{:?}", numbers(&disk));
    let bench = bench.reopen(&disk).unwrap();
    assert!(bench.dump().is_empty());
}

#[test]
fn a_folder_of_an_earlier_version_opens_and_then_misses_its_segments() {
    let (disk, clock) = written(300);
    disk.remove(".segments").unwrap();
    let bench = TestStore::open(&disk, &clock, 1).unwrap();
    assert_eq!(bench.dump().len(), 300);
    let active = bench.store.writer.log.active();
    drop(bench);
    refuses_without(&disk, &clock, &[active]);
}

/// A copy without hidden files has no list of segments. The spare is the last file then, and shows what is missing.
#[test]
fn without_the_list_of_segments_a_gap_before_the_spare_is_noticed() {
    for keys in [3, 300] {
        let (disk, clock) = written(keys);
        disk.remove(".segments").unwrap();
        disk.sync().unwrap();
        let mut numbers = numbers(&disk);
        let spare = numbers.pop();
        numbers.reverse();
        refuses_without(&disk, &clock, &numbers[..1]);
        refuses_without(&disk, &clock, &numbers);
        TestStore::open(&disk, &clock, 1).unwrap();
        assert_eq!(spare, Some(numbers[0] + 1), "a folder with all its files opens");
    }
}

/// The list of a folder that an earlier version has used since is out of date.
#[test]
fn a_missing_spare_names_the_way_out_after_an_earlier_version() {
    let (disk, clock) = written(300);
    let spare = *numbers(&disk).last().unwrap();
    disk.remove(&name_of(spare)).unwrap();
    refuses(
        &disk,
        &clock,
        "an earlier version of semel used the folder last, delete \".segments\"",
    );
    disk.remove(".segments").unwrap();
    assert_eq!(TestStore::open(&disk, &clock, 1).unwrap().dump().len(), 300);
}

#[test]
fn a_list_of_segments_that_cannot_be_read_is_refused_by_name() {
    let (disk, clock) = written(3);
    disk.tamper(".segments", |bytes| bytes[9] ^= 1);
    refuses(&disk, &clock, ".segments");
}

#[test]
fn a_segment_of_another_store_is_refused() {
    let ((disk, clock), (other, _)) = (written(3), written(3));
    let mut foreign = Vec::new();
    other.tamper("00000001.log", |bytes| foreign.clone_from(bytes));
    disk.tamper("00000001.log", |bytes| *bytes = foreign);
    refuses(&disk, &clock, "another store");
}

#[test]
fn a_segment_that_was_cut_short_is_refused() {
    let (disk, clock) = written(3);
    disk.tamper("00000001.log", |bytes| bytes.truncate(bytes.len() - 1));
    refuses(&disk, &clock, "cut short");
}

#[test]
fn a_damaged_header_of_the_last_segment_does_not_pass_for_an_empty_one() {
    let (disk, clock) = written(3);
    disk.remove("00000002.log").unwrap();
    disk.remove(".segments").unwrap();
    disk.tamper("00000001.log", |bytes| bytes[20] ^= 1);
    refuses(&disk, &clock, "header");
}

#[test]
fn without_its_identity_a_folder_is_not_taken_for_a_new_one() {
    let (disk, clock) = written(3);
    disk.remove("identity").unwrap();
    refuses(&disk, &clock, "identity");
}

#[test]
fn a_folder_with_foreign_files_is_refused_by_name() {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::new());
    disk.create("photo.jpg").unwrap();
    let error = TestStore::open(&disk, &clock, 1).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("photo.jpg"), "{error}");
}
