//! A store that stalls takes no key from a living owner, and planted bugs are found.

use semel_core::{OnLostOwner, State};
use semel_model::{StallAction, StallConfig};
use semel_planted_bugs::{PlantedBug, StepInput, StepRequest, named};

#[test]
fn a_stall_takes_no_key_from_a_living_owner() {
    for config in StallConfig::ALL {
        let check = config.check(&PlantedBug::NONE);
        println!("{:<24}{check}", config.name);
        assert!(check.broken.is_none(), "{}: {check}", config.name);
        // Of a dead owner no contest ends.
        assert_eq!(check.contests_ended == 0, config.is_dead, "{}: {check}", config.name);
    }
}

/// Bugs of single steps.
#[test]
fn a_bug_of_the_two_step_takeover_is_found() {
    let last_attempt = StallConfig { is_last_attempt: true, ..StallConfig::ONE };
    let hold = StallConfig { on_lost_owner: OnLostOwner::Hold, purges: true, ..StallConfig::ONE };
    let dead = StallConfig { is_dead: true, ..StallConfig::ONE };
    let others = StallConfig { contender_lease: 3, ..StallConfig::ONE };
    let lost_reply = StallConfig { claim_reply_is_lost: true, ..StallConfig::TWO };
    for (name, config) in [
        ("a lapsed lease is taken over at once", StallConfig::ONE),
        ("the cap needs no contest", last_attempt),
        ("purge needs no contest", hold),
        ("the contender's lease decides the grace period", others),
        ("every claim contests anew", dead),
        ("a contest writes nothing", dead),
        ("a renewal leaves the contest", StallConfig::TWO),
        ("the retry of a lost reply leaves the contest", lost_reply),
    ] {
        let check = config.check(named(name));
        println!("{name}: {check}");
        assert!(check.broken.is_some(), "{name}: {check}");
    }
}

/// The steps of the version before the two-step takeover: a claim takes a lapsed lease over at once, and what is written
/// keeps the flag, because that version reads it as a time of completion.
const EARLIER_VERSION: PlantedBug = PlantedBug {
    name: "the version before",
    before: |record, call, _| {
        if let (Some(record), StepRequest::Claim(_) | StepRequest::Purge) = (record, call) {
            record.contested |= record.state == State::InProgress;
        }
    },
    after: |StepInput { record, .. }, written| {
        if let (Some(before), Some(after)) = (record, written)
            && after.state == State::InProgress
        {
            after.contested |= before.contested;
        }
    },
    ..PlantedBug::NONE
};

/// While both versions run, a living owner keeps its key without a stall, and a dead one does not: as before.
#[test]
fn nodes_of_both_versions_keep_the_promises_of_the_earlier_one() {
    let new = PlantedBug::NONE;
    let nodes =
        [(&EARLIER_VERSION, &EARLIER_VERSION), (&EARLIER_VERSION, &new), (&new, &EARLIER_VERSION)];
    for (owner, others) in nodes {
        for config in StallConfig::ALL {
            let calm = StallConfig { stalls: 0, ..*config };
            let check = calm.check_nodes(owner, others);
            assert!(check.broken.is_none(), "{owner:?}, {others:?}, {}: {check}", config.name);
            let dead = StallConfig { is_dead: true, ..*config };
            let check = dead.check_nodes(owner, others);
            assert!(check.broken.is_none(), "{owner:?}, {others:?}, {}: {check}", config.name);
        }
    }
    let today = StallConfig::ONE.check(&EARLIER_VERSION);
    assert!(today.broken.is_some(), "a stall took the key of a living owner: {today}");
}

/// A flag that is left shows only in a second stall.
#[test]
fn one_stall_does_not_show_a_flag_that_is_left() {
    let check = StallConfig::ONE.check(named("a renewal leaves the contest"));
    assert!(check.broken.is_none(), "{check}");
}

#[test]
fn an_owner_that_is_heard_as_rarely_as_the_grace_period_is_long_loses_its_key() {
    let check = StallConfig { retry_ticks: 4, ..StallConfig::ONE }.check(&PlantedBug::NONE);
    let (_, path) = check.broken.expect("the claim comes first at the end of the grace period");
    assert!(path.contains(&StallAction::Stall), "{path:?}");
}

#[test]
fn a_grace_period_that_counts_from_the_time_of_sending_is_too_short() {
    let check = StallConfig { dated_by_client: true, ..StallConfig::ONE }.check(&PlantedBug::NONE);
    assert!(check.broken.is_some(), "{check}");
}
