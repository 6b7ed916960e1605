//! Observe mode: counts what enforcing would have done, and never interferes.
//!
//! The request passes untouched; a copy of its pieces is kept within the same bounds as when enforcing.
//! The claim is made after the answer, in a namespace of its own and off the request's path.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use semel_core::{self as core, Trial, Verdict, WorkError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use crate::{
    body::{RequestBody, ResponseBody, Seen},
    fingerprint::fingerprint,
    plan::{Shared, Ticket},
    replay::Draft,
    run::Call,
    service::Answer,
    telemetry::observed,
};

/// Requests that are observed at the same time; more are only counted as dropped.
const AT_ONCE: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Observer(Arc<Semaphore>);

impl Default for Observer {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

pub(crate) async fn observe<S, B, R>(
    shared: Arc<Shared>,
    ticket: Ticket,
    call: Box<Call<S>>,
    body: B,
) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes>,
{
    let Ok(place) = shared.observer.0.clone().try_acquire_owned() else {
        observed("dropped");
        return Ok(call.pass(RequestBody::passed(body)).await?.map(ResponseBody::inner));
    };
    let seen = Seen::new(ticket.route.policy.max_request_bytes, shared.budget.permit());
    if body.is_end_stream() {
        seen.end();
    }
    let asked = call.parts.clone();
    let response = call.pass(RequestBody::watched(body, seen.clone())).await;
    let verdict = match &response {
        Ok(response) => verdict(response, &ticket),
        Err(_) => Verdict::Retry(WorkError::retry("the inner service failed")),
    };
    tokio::spawn(count(ticket, asked, seen, verdict, place));
    Ok(response?.map(ResponseBody::inner))
}

/// What the answer would have meant. Nothing of it is kept.
fn verdict<R>(response: &Response<R>, ticket: &Ticket) -> Verdict {
    let mut bare = Response::new(());
    *bare.status_mut() = response.status();
    let (mut head, ()) = bare.into_parts();
    if let Some(verdict) = response.extensions().get::<crate::HandlerVerdict>() {
        head.extensions.insert(*verdict);
    }
    Draft::of(&head, &ticket.route.policy).verdict(core::Body::Omitted { length: 0 })
}

async fn count(
    ticket: Ticket,
    parts: Parts,
    seen: Seen,
    verdict: Verdict,
    _place: OwnedSemaphorePermit,
) {
    observed(match trial(&ticket, &parts, &seen, verdict).await {
        Ok(Trial::First) => "first",
        Ok(Trial::Replay) => "replay",
        Ok(Trial::Mismatch) => "fingerprint-mismatch",
        Ok(Trial::Busy) => "in-progress",
        Ok(Trial::Other) => "other",
        Err(reason) => reason,
    });
}

async fn trial(
    ticket: &Ticket,
    parts: &Parts,
    seen: &Seen,
    verdict: Verdict,
) -> Result<Trial, &'static str> {
    let Ticket { route, scope, key, .. } = ticket;
    let body = seen.take()?;
    let key = match key {
        Some(key) => key.clone(),
        None => {
            let found = route.find_key(scope, parts, &body).map_err(|problem| problem.name)?;
            found.ok_or("key-missing")?
        }
    };
    let asked = fingerprint(parts, &body, &route.policy.body);
    route.engine.trial(&key, &asked, verdict).await.map_err(|_| "store-unavailable")
}
