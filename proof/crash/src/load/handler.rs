//! The work of a run: it writes its effect to the ledger and ends as its script says.

use std::{panic, sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use semel_core::{Context, Verdict, WorkError};
use tokio::time::sleep;

use super::{WorkerShared, outcome::OutcomeOrigin};
use crate::{
    clock::mono,
    event::Hex,
    key::{KeyClass, KeyId},
    ledger::{LedgerEntry, LedgerFact},
};

/// What one run does, chosen before it begins.
#[derive(Clone, Debug)]
pub(super) struct RunScript {
    end: ScriptedEnd,
    before: Duration,
    after: Duration,
    run: Hex,
    padding: usize,
}

#[derive(Clone, Copy, Debug)]
enum ScriptedEnd {
    Success,
    Failure,
    NoEffect,
    Retry,
    Indeterminate,
    Panic,
}

impl RunScript {
    pub(super) fn random(rng: &mut StdRng, key: KeyId) -> Self {
        let end = match rng.random_range(0..100) {
            0..62 => ScriptedEnd::Success,
            62..72 => ScriptedEnd::Failure,
            72..80 => ScriptedEnd::NoEffect,
            80..88 => ScriptedEnd::Retry,
            88..95 => ScriptedEnd::Indeterminate,
            _ => ScriptedEnd::Panic,
        };
        Self {
            end,
            before: Self::pause(rng, key),
            after: Self::pause(rng, key),
            run: Hex(rng.random()),
            padding: rng.random_range(0..300),
        }
    }

    /// A run that succeeds at once.
    pub(super) fn success(run: u64) -> Self {
        let (before, after) = (Duration::ZERO, Duration::ZERO);
        Self { end: ScriptedEnd::Success, before, after, run: Hex(run), padding: 0 }
    }

    /// Mostly short. Runs of slow keys may take longer than their lease, which is not renewed for them.
    fn pause(rng: &mut StdRng, key: KeyId) -> Duration {
        let slow = key.class() == KeyClass::Slow && rng.random_bool(0.5);
        let millis = if slow { 40..160 } else { 0..12 };
        Duration::from_millis(rng.random_range(millis))
    }
}

/// The payload of a scripted panic.
struct ScriptedPanic;

/// Prints no message for scripted panics.
pub(super) fn silence_scripted_panics() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<ScriptedPanic>() {
            hook(info);
        }
    }));
}

pub(super) async fn work(
    shared: Arc<WorkerShared>,
    key: KeyId,
    payload: u8,
    script: RunScript,
    context: Context,
) -> Verdict {
    write(&shared, key, payload, &script, &context, LedgerFact::Start).await;
    shared.kill_points.reach("before-effect", Some(key));
    sleep(script.before).await;
    if matches!(script.end, ScriptedEnd::NoEffect) || context.is_lease_lost() {
        return Verdict::NoEffect(WorkError::no_effect("nothing happened"));
    }
    write(&shared, key, payload, &script, &context, LedgerFact::Effect).await;
    shared.kill_points.reach("after-effect", Some(key));
    sleep(script.after).await;
    script.verdict(key, payload)
}

impl RunScript {
    fn verdict(self, key: KeyId, payload: u8) -> Verdict {
        let origin =
            OutcomeOrigin { key, payload, run: self.run, padding: "x".repeat(self.padding) };
        match self.end {
            ScriptedEnd::Success => Verdict::Final(origin.to_success()),
            ScriptedEnd::Failure => Verdict::Final(origin.to_failure()),
            ScriptedEnd::NoEffect => Verdict::NoEffect(WorkError::no_effect("nothing happened")),
            ScriptedEnd::Retry => Verdict::Retry(WorkError::retry("try again")),
            ScriptedEnd::Indeterminate => {
                Verdict::Indeterminate(WorkError::indeterminate("cannot say"))
            }
            ScriptedEnd::Panic => panic::panic_any(ScriptedPanic),
        }
    }
}

async fn write(
    shared: &WorkerShared,
    key: KeyId,
    payload: u8,
    script: &RunScript,
    context: &Context,
    fact: LedgerFact,
) {
    let entry = LedgerEntry {
        t_mono: mono(),
        process: shared.job.process,
        run: script.run,
        key,
        nonce: shared.store.nonce(key, context.token()),
        token: context.token(),
        attempt: context.attempt(),
        fingerprint: payload,
        fact,
    };
    if let Err(error) = shared.ledger.write(&entry).await {
        eprintln!("worker: {error:#}");
        std::process::exit(4);
    }
}
