//! What is wrong beyond single steps.

use crate::{Flaw, Quirk};

pub(super) const FLAWS: &[Flaw] = &[
    alone("purge ignores its limit", Quirk::PurgeIgnoresItsLimit),
    quirk("get shows what has expired", Quirk::GetShowsExpired),
    quirk("list shows what has expired", Quirk::ListShowsExpired),
    alone("a page repeats the last record of the one before", Quirk::ListRepeatsTheLast),
    quirk("list is in no order", Quirk::ListIgnoresOrder),
    alone("list matches prefixes of namespaces", Quirk::ListMatchesPrefixes),
    quirk("a batch is answered in the order of its keys", Quirk::BatchAnswersInKeyOrder),
    quirk("a batch does not see its own twins", Quirk::BatchMissesTwins),
    alone("steps are not atomic", Quirk::StepsAreNotAtomic),
    quirk("leases are judged by a clock that stands still", Quirk::TimeStandsStill),
];

const fn quirk(name: &'static str, quirk: Quirk) -> Flaw {
    Flaw { name, quirk, ..Flaw::NONE }
}

/// A quirk no sequence of the state machine can show.
const fn alone(name: &'static str, quirk: Quirk) -> Flaw {
    Flaw { name, quirk, shows_in_sequence: false, ..Flaw::NONE }
}
