//! A caller: asks, asks again, asks twice at once, and sometimes for the wrong thing.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use semel_core::{RawAnswer, RunError};
use tokio::time::sleep;

use super::{
    World,
    handler::{Script, work},
    names::{PAYLOADS, fingerprint},
    outcome::describe,
    recording_store::kind_of,
};
use crate::{
    event::{Answer, Detail, Kind, Op},
    key::KeyId,
};

/// One thing to ask for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) key: KeyId,
    pub(super) payload: u8,
    pub(super) engine: usize,
    pub(super) script: Script,
}

/// Asks until the worker has had enough.
pub(super) async fn client(world: Arc<World>, mut rng: StdRng) {
    while world.takes_another() {
        let ask = random(&mut rng, &world);
        if rng.random_bool(0.15) {
            let other =
                Ask { engine: ask.engine + 1, script: another(&mut rng, &ask), ..ask.clone() };
            let third = Ask { script: another(&mut rng, &ask), ..ask.clone() };
            tokio::join!(call(&world, ask), call(&world, other), call(&world, third));
        } else {
            persist(&world, &mut rng, ask).await;
        }
        sleep(Duration::from_micros(rng.random_range(500..5000))).await;
    }
}

/// Repeats a call that was told to come back, as clients do.
async fn persist(world: &Arc<World>, rng: &mut StdRng, ask: Ask) {
    for _ in 0..3 {
        let script = another(rng, &ask);
        match call(world, Ask { script, ..ask.clone() }).await {
            Answer::Busy | Answer::Retry => sleep(Duration::from_millis(5)).await,
            // A store that is away gets a moment, as clients give it; it would fill the history.
            Answer::Error => sleep(Duration::from_millis(rng.random_range(30..90))).await,
            _ => return,
        }
    }
}

fn random(rng: &mut StdRng, world: &World) -> Ask {
    let job = &world.job;
    let key = KeyId(job.first_key + rng.random_range(0..job.keys));
    let payload = if rng.random_bool(0.06) { rng.random_range(1..PAYLOADS) } else { 0 };
    Ask { key, payload, engine: rng.random_range(0..8), script: Script::random(rng, key) }
}

/// No two runs share a script: each has its own outcome.
fn another(rng: &mut StdRng, ask: &Ask) -> Script {
    Script::random(rng, ask.key)
}

/// One call, from the first line in the history to the last.
pub(super) async fn call(world: &Arc<World>, ask: Ask) -> Answer {
    let Ask { key, payload, engine, script } = ask;
    let asked = Detail { key: Some(key), fingerprint: Some(payload), ..Detail::default() };
    let begun = world.journal.invoke(Op::Run, asked.clone());
    let (kind, told) = match run(world, key, payload, engine, script).await {
        Ok(answer) => (Kind::Ok, told(&answer)),
        Err(error) => refused(&error),
    };
    let answer = told.answer.unwrap_or(Answer::Error);
    let fingerprint = told.fingerprint.or(Some(payload));
    world.journal.end(begun, kind, Detail { key: Some(key), fingerprint, ..told });
    world.points.pass("after-answer", Some(key));
    answer
}

async fn run(
    world: &Arc<World>,
    key: KeyId,
    payload: u8,
    engine: usize,
    script: Script,
) -> Result<RawAnswer, RunError> {
    let engine = &world.engines[engine % world.engines.len()];
    let engine =
        engine.with_policy(key.class().policy(world.job.lease())).map_err(RunError::Store)?;
    let name = key.to_key(&world.job.namespace).map_err(RunError::Store)?;
    let world = world.clone();
    let work = move |context| work(world, key, payload, script, context);
    engine.run_raw(name, fingerprint(payload), work).await
}

fn told(answer: &RawAnswer) -> Detail {
    Detail {
        answer: Some(Answer::Done),
        attempt: Some(answer.attempt),
        replayed: answer.replayed,
        stored: answer.stored,
        ..describe(&answer.value)
    }
}

fn refused(error: &RunError) -> (Kind, Detail) {
    let (kind, answer) = match error {
        RunError::Retry(_) | RunError::Failed(_) => (Kind::Fail, Answer::Retry),
        RunError::Busy { .. } => (Kind::Fail, Answer::Busy),
        RunError::Mismatch => (Kind::Fail, Answer::Mismatch),
        RunError::Unknown => (Kind::Fail, Answer::Unknown),
        RunError::Dead => (Kind::Fail, Answer::Dead),
        RunError::Gone => (Kind::Fail, Answer::Gone),
        RunError::Store(error) => (kind_of(error), Answer::Error),
        _ => (Kind::Info, Answer::Error),
    };
    (kind, Detail { answer: Some(answer), ..Detail::default() })
}
