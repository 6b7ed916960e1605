//! A zoo of bugs that idempotency layers really have had, each with the test that catches it here.
//!
//! *kit*: this promise of `semel-conformance` is broken. *model*: this rule is broken in some order of
//! events. *schedules*: a bug of the engine and not of a store, which neither kit nor model can have.

use std::{fs, path::Path, thread};

use semel_model::{Config, Protocol, Rule};
use semel_planted_bugs::{Flaw, named};

use crate::conformance_promise;

struct Bug {
    name: &'static str,
    caught: Caught,
}

enum Caught {
    /// By both: the flaw, the promise of the kit, the rule of the model and where it shows.
    KitAndModel(&'static str, &'static str, Rule, Config),
    /// By this test of the engine's schedules. It is named here, and proves itself there.
    Schedules(&'static str),
}

use Caught::{KitAndModel, Schedules};

const ZOO: &[Bug] = &[
    Bug {
        name: "token resets on release",
        caught: KitAndModel(
            "release clears the token",
            "claim::a_token_rises_with_every_grant",
            Rule::TokensRise,
            Config::RERUN,
        ),
    },
    Bug {
        name: "complete ignores the nonce",
        caught: KitAndModel(
            "complete ignores the nonce",
            "complete::another_nonce_cannot_complete",
            Rule::StaleChangesNothing,
            Config::FORGETFUL,
        ),
    },
    Bug {
        name: "expiry by the caller's clock",
        caught: KitAndModel(
            "a contender's clock, running ahead, judges the lease",
            "claim::a_live_lease_answers_busy",
            Rule::NoEarlyTakeover,
            Config::RERUN,
        ),
    },
    Bug {
        name: "fingerprint checked after state",
        caught: KitAndModel(
            "claim looks at the state before the fingerprint",
            "mismatch::another_fingerprint_is_refused_when_unknown",
            Rule::MismatchFirst,
            Config::HOLD,
        ),
    },
    Bug {
        name: "purge ignores state",
        caught: KitAndModel(
            "purge ignores the state",
            "purge::purge_leaves_the_rest",
            Rule::PurgeSparesTheLiving,
            Config::HOLD,
        ),
    },
    Bug {
        name: "complete upserts",
        caught: KitAndModel(
            "complete makes a record",
            "complete::a_completion_makes_no_record",
            Rule::StaleChangesNothing,
            Config::FORGETFUL,
        ),
    },
    Bug {
        name: "claim not idempotent by nonce",
        caught: KitAndModel(
            "the retry of a lost reply is refused",
            "lost_reply::a_lost_reply_is_granted_again",
            Rule::RetryIsGranted,
            Config::RERUN,
        ),
    },
    Bug {
        name: "release frees another's claim",
        caught: KitAndModel(
            "anybody may release",
            "release::only_the_owner_releases",
            Rule::StaleChangesNothing,
            Config::RERUN,
        ),
    },
    Bug { name: "waiter stampede", caught: Schedules("a_waiter_stampede_is_caught") },
    Bug {
        name: "retention counted from claim",
        caught: KitAndModel(
            "retention counts from the claim",
            "expiry::an_outcome_is_kept_from_completion",
            Rule::OneOutcome,
            Config::RERUN,
        ),
    },
];

#[test]
fn every_bug_of_the_zoo_is_caught() {
    println!("| bug | kit: broken promise | model: broken rule |\n|---|---|---|");
    for bug in ZOO {
        let row = match bug.caught {
            KitAndModel(flaw, promise, rule, config) => {
                assert!(kit_catches(named(flaw), promise), "{}: {promise} holds", bug.name);
                assert!(model_catches(named(flaw), rule, config), "{}: {rule} holds", bug.name);
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

/// The kit catches the flaw if the promise holds without it and is broken with it.
fn kit_catches(flaw: &'static Flaw, promise: &str) -> bool {
    conformance_promise::holds(&Flaw::NONE, promise) && !conformance_promise::holds(flaw, promise)
}

/// That nothing breaks without the flaw is what `tests/protocol.rs` shows.
fn model_catches(flaw: &'static Flaw, rule: Rule, config: Config) -> bool {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let report = Protocol::flawed(config, flaw, rule).check(threads);
    report.broken.iter().any(|(broken, _)| *broken == rule)
}
