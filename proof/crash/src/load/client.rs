//! A client of the engine: it calls, retries, sends duplicates at once, and sometimes sends a wrong payload.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use semel_core::{RawAnswer, RunError};
use tokio::time::sleep;

use super::{
    WorkerShared,
    handler::{RunScript, work},
    names::{PAYLOADS, fingerprint},
    outcome::describe,
    recording_store::kind_of,
};
use crate::{
    event::{Detail, EventKind, Op, ReplyKind},
    key::KeyId,
};

/// One call to make.
#[derive(Clone, Debug)]
pub(super) struct ClientRequest {
    pub(super) key: KeyId,
    pub(super) payload: u8,
    pub(super) engine: usize,
    pub(super) script: RunScript,
}

/// Makes calls until the worker has made as many as its job says.
pub(super) async fn client(shared: Arc<WorkerShared>, mut rng: StdRng) {
    while shared.may_call_again() {
        let request = random_request(&mut rng, &shared);
        if rng.random_bool(0.15) {
            let other =
                ClientRequest { engine: request.engine + 1, ..with_new_script(&mut rng, &request) };
            let third = with_new_script(&mut rng, &request);
            tokio::join!(call(&shared, request), call(&shared, other), call(&shared, third));
        } else {
            call_with_retries(&shared, &mut rng, request).await;
        }
        sleep(Duration::from_micros(rng.random_range(500..5000))).await;
    }
}

/// Calls up to three times while the reply is one that clients retry.
async fn call_with_retries(shared: &Arc<WorkerShared>, rng: &mut StdRng, request: ClientRequest) {
    for _ in 0..3 {
        match call(shared, with_new_script(rng, &request)).await {
            ReplyKind::Busy | ReplyKind::Retry => sleep(Duration::from_millis(5)).await,
            // Clients wait longer for a store that is down; without it errors would fill the history.
            ReplyKind::Error => sleep(Duration::from_millis(rng.random_range(30..90))).await,
            _ => return,
        }
    }
}

fn random_request(rng: &mut StdRng, shared: &WorkerShared) -> ClientRequest {
    let job = &shared.job;
    let key = KeyId(job.first_key + rng.random_range(0..job.keys));
    let payload = if rng.random_bool(0.06) { rng.random_range(1..PAYLOADS) } else { 0 };
    let engine = rng.random_range(0..8);
    ClientRequest { key, payload, engine, script: RunScript::random(rng, key) }
}

/// The same request with a script of its own: no two runs share an outcome.
fn with_new_script(rng: &mut StdRng, request: &ClientRequest) -> ClientRequest {
    ClientRequest { script: RunScript::random(rng, request.key), ..request.clone() }
}

/// Makes one call and writes its begin and its end to the history.
pub(super) async fn call(shared: &Arc<WorkerShared>, request: ClientRequest) -> ReplyKind {
    let ClientRequest { key, payload, engine, script } = request;
    let detail = Detail { key: Some(key), fingerprint: Some(payload), ..Detail::default() };
    let begun = shared.journal.invoke(Op::Run, detail);
    let (kind, detail) = match run(shared, key, payload, engine, script).await {
        Ok(answer) => (EventKind::Ok, describe_answer(&answer)),
        Err(error) => describe_error(&error),
    };
    let reply = detail.reply.unwrap_or(ReplyKind::Error);
    let fingerprint = detail.fingerprint.or(Some(payload));
    shared.journal.end(begun, kind, Detail { key: Some(key), fingerprint, ..detail });
    shared.kill_points.reach("after-answer", Some(key));
    reply
}

async fn run(
    shared: &Arc<WorkerShared>,
    key: KeyId,
    payload: u8,
    engine: usize,
    script: RunScript,
) -> Result<RawAnswer, RunError> {
    let engine = &shared.engines[engine % shared.engines.len()];
    let engine =
        engine.with_policy(key.class().policy(shared.job.lease())).map_err(RunError::Store)?;
    let name = key.to_key(&shared.job.namespace).map_err(RunError::Store)?;
    let shared = shared.clone();
    let work = move |context| work(shared, key, payload, script, context);
    engine.run_raw(name, fingerprint(payload), work).await
}

fn describe_answer(answer: &RawAnswer) -> Detail {
    Detail {
        reply: Some(ReplyKind::Done),
        attempt: Some(answer.attempt),
        replayed: answer.replayed,
        stored: answer.stored,
        ..describe(&answer.value)
    }
}

fn describe_error(error: &RunError) -> (EventKind, Detail) {
    let (kind, reply) = match error {
        RunError::Retry(_) | RunError::Failed(_) => (EventKind::Fail, ReplyKind::Retry),
        RunError::Busy { .. } => (EventKind::Fail, ReplyKind::Busy),
        RunError::Mismatch => (EventKind::Fail, ReplyKind::Mismatch),
        RunError::Unknown => (EventKind::Fail, ReplyKind::Unknown),
        RunError::Dead => (EventKind::Fail, ReplyKind::Dead),
        RunError::Gone => (EventKind::Fail, ReplyKind::Gone),
        RunError::Store(error) => (kind_of(error), ReplyKind::Error),
        _ => (EventKind::Info, ReplyKind::Error),
    };
    (kind, Detail { reply: Some(reply), ..Detail::default() })
}
