//! The work: it takes effect in the ledger and ends as its script says.

use std::{panic, sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use semel_core::{Context, Verdict, WorkError};
use tokio::time::sleep;

use super::{World, outcome::Origin};
use crate::{
    clock::mono,
    event::Hex,
    key::{Class, KeyId},
    ledger::{Entry, What},
};

/// How a run goes, decided before it begins.
#[derive(Clone, Debug)]
pub(super) struct Script {
    end: End,
    before: Duration,
    after: Duration,
    run: Hex,
    padding: usize,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Success,
    Failure,
    NoEffect,
    Retry,
    Indeterminate,
    Panic,
}

impl Script {
    pub(super) fn random(rng: &mut StdRng, key: KeyId) -> Self {
        let end = match rng.random_range(0..100) {
            0..62 => End::Success,
            62..72 => End::Failure,
            72..80 => End::NoEffect,
            80..88 => End::Retry,
            88..95 => End::Indeterminate,
            _ => End::Panic,
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
        Self { end: End::Success, before, after, run: Hex(run), padding: 0 }
    }

    /// Mostly short; runs of slow keys may outlast their lease, which nobody renews for them.
    fn pause(rng: &mut StdRng, key: KeyId) -> Duration {
        let slow = key.class() == Class::Slow && rng.random_bool(0.5);
        let millis = if slow { 40..160 } else { 0..12 };
        Duration::from_millis(rng.random_range(millis))
    }
}

/// The payload of panics that belong to the script.
struct Planned;

/// Panics of the script are not worth a line; any other is.
pub(super) fn silence_planned_panics() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Planned>() {
            hook(info);
        }
    }));
}

pub(super) async fn work(
    world: Arc<World>,
    key: KeyId,
    payload: u8,
    script: Script,
    context: Context,
) -> Verdict {
    write(&world, key, payload, &script, &context, What::Start).await;
    world.points.pass("before-effect", Some(key));
    sleep(script.before).await;
    if matches!(script.end, End::NoEffect) || context.is_lease_lost() {
        return Verdict::NoEffect(WorkError::no_effect("nothing happened"));
    }
    write(&world, key, payload, &script, &context, What::Effect).await;
    world.points.pass("after-effect", Some(key));
    sleep(script.after).await;
    script.verdict(key, payload)
}

impl Script {
    fn verdict(self, key: KeyId, payload: u8) -> Verdict {
        let origin = Origin { key, payload, run: self.run, padding: "x".repeat(self.padding) };
        match self.end {
            End::Success => Verdict::Final(origin.to_success()),
            End::Failure => Verdict::Final(origin.to_failure()),
            End::NoEffect => Verdict::NoEffect(WorkError::no_effect("nothing happened")),
            End::Retry => Verdict::Retry(WorkError::retry("try again")),
            End::Indeterminate => Verdict::Indeterminate(WorkError::indeterminate("cannot say")),
            End::Panic => panic::panic_any(Planned),
        }
    }
}

async fn write(
    world: &World,
    key: KeyId,
    payload: u8,
    script: &Script,
    context: &Context,
    what: What,
) {
    let entry = Entry {
        t_mono: mono(),
        process: world.job.process,
        run: script.run,
        key,
        nonce: world.witness.nonce(key, context.token()),
        token: context.token(),
        attempt: context.attempt(),
        fingerprint: payload,
        what,
    };
    if let Err(error) = world.ledger.write(&entry).await {
        eprintln!("worker: {error:#}");
        std::process::exit(4);
    }
}
