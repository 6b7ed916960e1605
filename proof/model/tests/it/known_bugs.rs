//! Bugs that idempotency layers have really had, each with the test that catches it here.
//!
//! *suite*: this promise of `semel-conformance` is broken. *model*: this rule is broken in some order of events.
//! *schedules*: a bug of the engine and not of a store, which neither suite nor model can show.

use std::{fs, path::Path, thread};

use semel_model::{ModelConfig, Protocol, ProtocolRule};
use semel_planted_bugs::{PlantedBug, named};

use crate::conformance_promise;

struct KnownBug {
    name: &'static str,
    caught: Caught,
}

enum Caught {
    /// By both: the planted bug, the promise of the suite, the rule of the model and the configuration that shows it.
    SuiteAndModel(&'static str, &'static str, ProtocolRule, ModelConfig),
    /// By this schedule test of the engine, which runs there.
    Schedules(&'static str),
}

use Caught::{Schedules, SuiteAndModel};

const KNOWN_BUGS: &[KnownBug] = &[
    KnownBug {
        name: "token resets on release",
        caught: SuiteAndModel(
            "release clears the token",
            "claim::a_token_rises_with_every_grant",
            ProtocolRule::TokensRise,
            ModelConfig::RERUN,
        ),
    },
    KnownBug {
        name: "complete ignores the nonce",
        caught: SuiteAndModel(
            "complete ignores the nonce",
            "complete::another_nonce_cannot_complete",
            ProtocolRule::SupersededChangesNothing,
            ModelConfig::FORGETFUL,
        ),
    },
    KnownBug {
        name: "expiry by the caller's clock",
        caught: SuiteAndModel(
            "a contender's clock, running ahead, judges the lease",
            "claim::a_live_lease_answers_busy",
            ProtocolRule::NoEarlyTakeover,
            ModelConfig::RERUN,
        ),
    },
    KnownBug {
        name: "fingerprint checked after state",
        caught: SuiteAndModel(
            "claim looks at the state before the fingerprint",
            "mismatch::another_fingerprint_is_refused_when_unknown",
            ProtocolRule::MismatchFirst,
            ModelConfig::HOLD,
        ),
    },
    KnownBug {
        name: "purge ignores state",
        caught: SuiteAndModel(
            "purge ignores the state",
            "purge::purge_leaves_the_rest",
            ProtocolRule::PurgeDeletesOnlyExpired,
            ModelConfig::HOLD,
        ),
    },
    KnownBug {
        name: "complete upserts",
        caught: SuiteAndModel(
            "complete makes a record",
            "complete::a_completion_makes_no_record",
            ProtocolRule::SupersededChangesNothing,
            ModelConfig::FORGETFUL,
        ),
    },
    KnownBug {
        name: "claim not idempotent by nonce",
        caught: SuiteAndModel(
            "the retry of a lost reply is refused",
            "lost_reply::a_lost_reply_is_granted_again",
            ProtocolRule::RetryIsGranted,
            ModelConfig::RERUN,
        ),
    },
    KnownBug {
        name: "release frees the claim of another owner",
        caught: SuiteAndModel(
            "any caller may release",
            "release::only_the_owner_releases",
            ProtocolRule::SupersededChangesNothing,
            ModelConfig::RERUN,
        ),
    },
    KnownBug { name: "waiter stampede", caught: Schedules("a_follower_stampede_is_found") },
    KnownBug {
        name: "retention counted from claim",
        caught: SuiteAndModel(
            "retention counts from the claim",
            "expiry::an_outcome_is_kept_from_completion",
            ProtocolRule::OneOutcome,
            ModelConfig::RERUN,
        ),
    },
];

#[test]
fn every_known_bug_is_caught() {
    println!("| bug | suite: broken promise | model: broken rule |\n|---|---|---|");
    for bug in KNOWN_BUGS {
        let row = match bug.caught {
            SuiteAndModel(planted, promise, rule, config) => {
                assert!(suite_catches(named(planted), promise), "{}: {promise} holds", bug.name);
                assert!(model_catches(named(planted), rule, config), "{}: {rule} holds", bug.name);
                format!("`{promise}` | {rule}")
            }
            Schedules(test) => {
                assert!(is_a_schedule(test), "{}: there is no test `{test}`", bug.name);
                format!("in the engine: schedule test `{test}` | as before")
            }
        };
        println!("| {} | {row} |", bug.name);
    }
}

/// True when the engine's schedules have a test of this name.
fn is_a_schedule(test: &str) -> bool {
    let file = "../../crates/semel-core/src/engine/schedules/waiters.rs";
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    source.expect("the engine's schedules").contains(&format!("fn {test}()"))
}

/// True when the promise holds without the bug and is broken with it.
fn suite_catches(bug: &'static PlantedBug, promise: &str) -> bool {
    conformance_promise::holds(&PlantedBug::NONE, promise)
        && !conformance_promise::holds(bug, promise)
}

/// True when the bug breaks the rule. `protocol.rs` shows that the rule holds without it.
fn model_catches(bug: &'static PlantedBug, rule: ProtocolRule, config: ModelConfig) -> bool {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let report = Protocol::with_bug(config, bug, rule).check(threads);
    report.broken.iter().any(|(broken, _)| *broken == rule)
}
