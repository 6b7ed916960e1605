//! The model is tested: with one condition of the protocol switched off, it finds the rule that breaks.

use std::thread;

use semel_model::{ModelConfig, Protocol, ProtocolRule};
use semel_planted_bugs::{StoreBug, all, named};

use crate::conformance_promise;

/// A bug, the rule it breaks, and the smallest configuration that shows it.
const BROKEN: &[(&str, ProtocolRule, ModelConfig)] = &[
    // T1–T5b
    ("claim ignores the fingerprint in progress", ProtocolRule::OneFingerprint, ModelConfig::RERUN),
    (
        "claim looks at the state before the fingerprint",
        ProtocolRule::MismatchFirst,
        ModelConfig::HOLD,
    ),
    ("a busy answer extends the lease", ProtocolRule::LeaseEnds, ModelConfig::RERUN),
    (
        "the retry of a lost reply counts as an attempt",
        ProtocolRule::NotDeadBelowTheLimit,
        ModelConfig::RERUN,
    ),
    ("the retry of a lost reply restarts the run", ProtocolRule::MaxRunEnds, ModelConfig::RERUN),
    ("the retry of a lost reply is refused", ProtocolRule::RetryIsGranted, ModelConfig::RERUN),
    (
        "an abandoned claim is revived by its nonce",
        ProtocolRule::AbandonedIsFinal,
        ModelConfig::MIXED,
    ),
    (
        "a late copy of a released claim is granted",
        ProtocolRule::LateCopyIsNotGranted,
        ModelConfig::MIXED,
    ),
    ("a contender's policy is used", ProtocolRule::HoldRunsOnce, ModelConfig::MIXED),
    ("a contender's cap is used", ProtocolRule::WithinTheLimit, ModelConfig::MIXED),
    (
        "a contender's clock, running ahead, judges the lease",
        ProtocolRule::NoEarlyTakeover,
        ModelConfig::RERUN,
    ),
    (
        "a released key takes the policy of the next claim",
        ProtocolRule::WithinTheLimit,
        ModelConfig::MIXED,
    ),
    ("every owner gets the lease of the first", ProtocolRule::NoEarlyTakeover, ModelConfig::MIXED),
    ("a takeover is not dirty", ProtocolRule::OneFingerprint, ModelConfig::MIXED),
    ("a takeover keeps the token", ProtocolRule::OwnerIsAccepted, ModelConfig::RERUN),
    ("a key dies below its cap", ProtocolRule::NotDeadBelowTheLimit, ModelConfig::RERUN),
    (
        "all deaths of a released key look alike",
        ProtocolRule::DecisionFitsTheClaim,
        ModelConfig::TWICE,
    ),
    (
        "a key that dies carries the claimant's nonce",
        ProtocolRule::SupersededChangesNothing,
        ModelConfig::FORGETFUL,
    ),
    (
        "a key that dies carries the claimant's nonce",
        ProtocolRule::SupersededChangesNothing,
        ModelConfig::MIXED,
    ),
    ("a lost claim expires from its claim on", ProtocolRule::KeptInTime, ModelConfig::RERUN),
    (
        "the retry of a lost reply does not re-arm the lease",
        ProtocolRule::NoEarlyTakeover,
        ModelConfig::RERUN,
    ),
    (
        "claim ignores the fingerprint when completed",
        ProtocolRule::MismatchFirst,
        ModelConfig::RERUN,
    ),
    (
        "claim ignores the fingerprint when released",
        ProtocolRule::OneFingerprint,
        ModelConfig::RERUN,
    ),
    (
        "a released key is granted with its old token",
        ProtocolRule::OwnerIsAccepted,
        ModelConfig::RERUN,
    ),
    ("the cap is ignored", ProtocolRule::WithinTheLimit, ModelConfig::RERUN),
    ("a takeover is not counted as an attempt", ProtocolRule::WithinTheLimit, ModelConfig::TWICE),
    ("an unknown key is granted again", ProtocolRule::HoldRunsOnce, ModelConfig::HOLD),
    ("a dead key is granted again", ProtocolRule::WithinTheLimit, ModelConfig::TWICE),
    ("an erased key is granted again", ProtocolRule::HoldRunsOnce, ModelConfig::CLEARED),
    // T5a
    ("a lapsed lease is taken over at once", ProtocolRule::NoEarlyTakeover, ModelConfig::RERUN),
    ("the cap needs no contest", ProtocolRule::NoEarlyTakeover, ModelConfig::FORGETFUL),
    ("purge needs no contest", ProtocolRule::StateFollowsTable, ModelConfig::HOLD),
    ("a contest writes nothing", ProtocolRule::LeaseEnds, ModelConfig::RERUN),
    ("a renewal leaves the contest", ProtocolRule::NoEarlyTakeover, ModelConfig::RERUN),
    (
        "the retry of a lost reply leaves the contest",
        ProtocolRule::NoEarlyTakeover,
        ModelConfig::RERUN,
    ),
    ("a takeover leaves the contest", ProtocolRule::NoEarlyTakeover, ModelConfig::LAPSED),
    // T6–T9: how an owner is recognised
    (
        "owners are known by their token alone",
        ProtocolRule::SupersededChangesNothing,
        ModelConfig::FORGETFUL,
    ),
    (
        "owners are known by their nonce alone",
        ProtocolRule::SupersededChangesNothing,
        ModelConfig::MIXED,
    ),
    // T6
    ("renew ignores max_run", ProtocolRule::MaxRunEnds, ModelConfig::RERUN),
    ("renew revives an abandoned claim", ProtocolRule::AbandonedIsFinal, ModelConfig::RERUN),
    ("renew leaves the expiry", ProtocolRule::KeptInTime, ModelConfig::RERUN),
    ("renew revives a completed key", ProtocolRule::OutcomeStays, ModelConfig::RERUN),
    ("renew revives an unknown key", ProtocolRule::StateFollowsTable, ModelConfig::HOLD),
    // T7
    ("complete is refused after the lease", ProtocolRule::OwnerIsAccepted, ModelConfig::RERUN),
    (
        "complete is refused when the key is dead",
        ProtocolRule::OwnerIsAccepted,
        ModelConfig::FORGETFUL,
    ),
    (
        "complete finds an expired record",
        ProtocolRule::SupersededChangesNothing,
        ModelConfig::RERUN,
    ),
    ("complete ignores the nonce", ProtocolRule::SupersededChangesNothing, ModelConfig::FORGETFUL),
    ("complete ignores the token", ProtocolRule::SupersededChangesNothing, ModelConfig::MIXED),
    ("complete makes a record", ProtocolRule::SupersededChangesNothing, ModelConfig::FORGETFUL),
    (
        "complete is refused when the key is unknown",
        ProtocolRule::OwnerIsAccepted,
        ModelConfig::HOLD,
    ),
    ("the last outcome wins", ProtocolRule::KeptInTime, ModelConfig::RERUN),
    ("retention counts from the claim", ProtocolRule::OneOutcome, ModelConfig::RERUN),
    ("failures are kept like successes", ProtocolRule::KeptInTime, ModelConfig::MIXED),
    // T8
    ("release takes a key that has ended", ProtocolRule::StateFollowsTable, ModelConfig::RERUN),
    ("any caller may release", ProtocolRule::SupersededChangesNothing, ModelConfig::RERUN),
    ("release clears the token", ProtocolRule::TokensRise, ModelConfig::RERUN),
    ("release unpins a dirty key", ProtocolRule::OneFingerprint, ModelConfig::MIXED),
    ("a release forgets the attempts", ProtocolRule::WithinTheLimit, ModelConfig::RERUN),
    ("a released key never expires", ProtocolRule::AlwaysProgress, ModelConfig::RERUN),
    ("a retry on hold opens the key", ProtocolRule::HoldRunsOnce, ModelConfig::HOLD),
    ("a retry unpins", ProtocolRule::OneFingerprint, ModelConfig::RERUN),
    ("a retry is not dirty", ProtocolRule::OneFingerprint, ModelConfig::MIXED),
    ("an unknown key is released for a retry", ProtocolRule::StateFollowsTable, ModelConfig::HOLD),
    (
        "a release without effect is refused when unknown",
        ProtocolRule::OwnerIsAccepted,
        ModelConfig::HOLD,
    ),
    // T9
    ("abandon takes a key that has ended", ProtocolRule::OutcomeStays, ModelConfig::RERUN),
    ("abandon ignores the backoff", ProtocolRule::NoEarlyTakeover, ModelConfig::RERUN),
    ("an abandoned key on hold lapses", ProtocolRule::HoldRunsOnce, ModelConfig::HOLD),
    ("an unknown key expires", ProtocolRule::HoldRunsOnce, ModelConfig::HOLD),
    // T10
    ("resolve ignores what was seen", ProtocolRule::DecisionFitsTheClaim, ModelConfig::RERUN),
    ("resolve leaves the former owner in place", ProtocolRule::RecordedIsStored, ModelConfig::HOLD),
    ("resolve leaves the attempts", ProtocolRule::StuckIsResolvable, ModelConfig::RERUN),
    ("resolve decides live keys", ProtocolRule::NoEarlyTakeover, ModelConfig::RERUN),
    ("resolve refuses a lapsed claim", ProtocolRule::StuckIsResolvable, ModelConfig::RERUN),
    ("a reopened key is not dirty", ProtocolRule::OneFingerprint, ModelConfig::HOLD),
    ("a reopened key forgets its token", ProtocolRule::TokensRise, ModelConfig::HOLD),
    ("resolve decides completed keys", ProtocolRule::OneOutcome, ModelConfig::HOLD),
    ("resolve decides released keys", ProtocolRule::StateFollowsTable, ModelConfig::HOLD),
    // T11–T13
    ("a tombstone never expires", ProtocolRule::AlwaysProgress, ModelConfig::CLEARED),
    ("forget takes work in progress", ProtocolRule::ForgetRefusesUndecided, ModelConfig::CLEARED),
    ("forget takes tombstones", ProtocolRule::ForgetRefusesUndecided, ModelConfig::CLEARED),
    ("erase leaves no tombstone", ProtocolRule::HoldRunsOnce, ModelConfig::CLEARED),
    ("purge deletes unknown keys", ProtocolRule::PurgeDeletesOnlyExpired, ModelConfig::HOLD),
    ("purge does not put lost owners on hold", ProtocolRule::AlwaysProgress, ModelConfig::HOLD),
    ("purge ignores the state", ProtocolRule::PurgeDeletesOnlyExpired, ModelConfig::HOLD),
    ("forget takes unknown keys", ProtocolRule::ForgetRefusesUndecided, ModelConfig::CLEARED),
];

/// Bugs of single steps that the model cannot show, why, and the promise of the conformance suite that they break.
const NOT_IN_THE_MODEL: &[(&str, &str, &str)] = &[
    (
        "a key that died released keeps its owner",
        "no worker completes what it released",
        "complete::a_released_key_that_died_is_not_completed",
    ),
    (
        "the contender's lease decides the grace period",
        "all grace periods of the model are one tick",
        "takeover::a_contender_does_not_choose_the_grace_period",
    ),
    (
        "every claim contests anew",
        "all grace periods of the model are one tick",
        "takeover::a_grace_period_is_not_extended",
    ),
    ("bodies are text", "outcomes of the model are text", "outcome::a_binary_body_comes_back"),
    ("labels are lost at completion", "the model has no labels", "outcome::labels_come_back"),
    ("erase keeps the labels", "the model has no labels", "erase::any_record_is_erased"),
    ("erase keeps the outcome", "no reply contains it", "erase::any_record_is_erased"),
    ("erase keeps the fingerprint", "a mismatch is still correct", "erase::any_record_is_erased"),
    ("erase keeps the nonce", "no step reads it from a tombstone", "erase::any_record_is_erased"),
];

#[test]
fn every_condition_that_is_switched_off_breaks_its_rule() {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let mut unbroken = Vec::new();
    for (name, rule, config) in BROKEN {
        let report = Protocol::with_bug(*config, named(name), *rule).check(threads);
        let broken: Vec<ProtocolRule> = report.broken.iter().map(|(rule, _)| *rule).collect();
        println!("{name}\n{report}\n");
        if broken != [*rule] {
            unbroken.push(*name);
        }
    }
    assert_eq!(unbroken, [""; 0], "the model does not find these bugs");
}

#[test]
fn every_bug_of_a_single_step_is_found_or_explained() {
    let known = |name| {
        BROKEN.iter().any(|(it, ..)| *it == name)
            || NOT_IN_THE_MODEL.iter().any(|(it, ..)| *it == name)
    };
    let steps = all().filter(|bug| bug.store_bug == StoreBug::None);
    let missing: Vec<_> = steps.map(|bug| bug.name).filter(|name| !known(*name)).collect();
    assert_eq!(missing, [""; 0], "neither found nor explained");
}

#[test]
fn bugs_that_the_model_cannot_show_break_a_promise_of_the_conformance_suite() {
    for (name, _, promise) in NOT_IN_THE_MODEL {
        assert!(!conformance_promise::holds(named(name), promise), "{promise} holds though {name}");
    }
}
