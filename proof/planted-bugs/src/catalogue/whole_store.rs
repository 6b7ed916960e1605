//! Bugs beyond single steps.

use crate::{PlantedBug, StoreBug};

pub(super) const BUGS: &[PlantedBug] = &[
    not_in_sequence("purge ignores its limit", StoreBug::PurgeIgnoresItsLimit),
    in_sequence("get shows expired records", StoreBug::GetShowsExpired),
    in_sequence("list shows expired records", StoreBug::ListShowsExpired),
    not_in_sequence(
        "a page repeats the last record of the one before",
        StoreBug::ListRepeatsTheLast,
    ),
    in_sequence("a list is not sorted", StoreBug::ListIgnoresOrder),
    not_in_sequence("list matches prefixes of namespaces", StoreBug::ListMatchesPrefixes),
    in_sequence("a batch is answered in the order of its keys", StoreBug::BatchAnswersInKeyOrder),
    in_sequence(
        "requests for one key in a batch do not see each other",
        StoreBug::BatchMissesSameKey,
    ),
    not_in_sequence("steps are not atomic", StoreBug::StepsAreNotAtomic),
    in_sequence("leases are judged by a clock that stands still", StoreBug::TimeStandsStill),
];

const fn in_sequence(name: &'static str, store_bug: StoreBug) -> PlantedBug {
    PlantedBug { name, store_bug, ..PlantedBug::NONE }
}

/// A bug that no sequence of the state machine can show.
const fn not_in_sequence(name: &'static str, store_bug: StoreBug) -> PlantedBug {
    PlantedBug { name, store_bug, shows_in_sequence: false, ..PlantedBug::NONE }
}
