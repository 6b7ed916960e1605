//! The state machine: compares a store with the protocol's own pure functions.
//!
//! Steps are generated from a reference that follows the protocol in virtual time, so that most of them have an
//! effect. The same functions then check the replies of the store.

mod approx_eq;
mod compare;
mod generate;
mod identifiers;
mod model;
mod send;
mod transition;

use std::{fmt::Write, sync::atomic::Ordering, time::Duration};

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use semel_core::{Record, Store};

use self::{
    compare::StoreChecker, generate::ProtocolMachine, identifiers::Identifiers,
    transition::Transition,
};
use crate::{Time, run::runtime};

/// The error says how a store departs from the protocol.
type CheckResult<T = ()> = Result<T, String>;

/// A store to be compared with the protocol.
pub trait Subject: Sized + Send + Sync {
    /// Opens the store, once for a run of the state machine.
    fn open() -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &dyn Store;

    /// How time passes for the store.
    fn time(&self) -> &dyn Time;

    /// How far the store's times may be off, beyond the time a call takes.
    ///
    /// Zero for a store on a [`ManualClock`](semel_core::ManualClock) of its own: all times are compared to the
    /// millisecond. If it is not zero, other processes may also purge the store meanwhile.
    fn tolerance(&self) -> Duration {
        Duration::ZERO
    }

    /// Blanks the fields that the store does not keep in this state. Applied to both sides of a comparison.
    fn blank(&self, _record: &mut Record) {}
}

/// Runs `cases` random sequences of `steps` steps and compares every reply and every record with the protocol. Call
/// it outside of a runtime, from a plain `#[test]`.
///
/// # Panics
///
/// If the store departs from the protocol. The message has the shortest sequence that shows it, and the seed that
/// repeats the run.
pub fn state_machine<S: Subject>(cases: u32, steps: usize) {
    let runtime = runtime();
    let subject = runtime.block_on(S::open());
    let checker =
        runtime.block_on(StoreChecker::new(&subject)).unwrap_or_else(|reason| panic!("{reason}"));
    let config = config(cases);
    let seed = config.rng_seed;
    let result = TestRunner::new(config).run(
        &ProtocolMachine::sequential_strategy(steps..=steps),
        |(state, transitions, seen)| {
            let count = || {
                if let Some(seen) = &seen {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            };
            let identifiers = Identifiers::random(state.starts);
            let checked = checker.run_sequence(identifiers, &transitions, count);
            runtime.block_on(checked).map_err(TestCaseError::fail)
        },
    );
    runtime.block_on(checker.close());
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, (_, transitions, _))) => {
            panic!("{}", failure_message(&reason.to_string(), &transitions, seed));
        }
        Err(TestError::Abort(reason)) => panic!("the state machine was aborted: {reason}"),
    }
}

fn config(cases: u32) -> Config {
    let mut config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 5_000,
        max_shrink_time: 120_000,
        ..Config::default()
    };
    // A fixed random seed if none is given, so that the failure message can name it.
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(rand::random());
    }
    config
}

fn failure_message(reason: &str, transitions: &[Transition], seed: RngSeed) -> String {
    let mut message =
        format!("the store departs from the protocol:\n{reason}\nafter these steps:\n");
    for (number, transition) in transitions.iter().enumerate() {
        let _ = writeln!(message, "{:>4}  {transition:?}", number + 1);
    }
    let _ = write!(message, "to repeat it: PROPTEST_RNG_SEED={seed}");
    message
}
