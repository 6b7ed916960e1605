//! Observe mode: counts what enforcing would have done, and never changes a request or an answer.
//!
//! The request passes unchanged. A copy of its body is kept within the same bounds as when enforcing. A task of
//! its own makes the claim after the answer, in a separate namespace.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use semel_core::{self as core, Trial, Verdict, WorkError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use crate::{
    Mode,
    attempt::InnerCall,
    body::{BodyCopy, RequestBody, ResponseBody},
    budget::BufferBudget,
    fingerprint::fingerprint,
    keyed_request::KeyedRequest,
    outcome::OutcomeDraft,
    service::ServiceResult,
    state::LayerState,
    telemetry::count_observed,
};

/// Requests that are observed at the same time. Requests beyond that are only counted as dropped.
const MAX_OBSERVED: usize = 1024;

/// The bounds of observed requests. They are separate, so that observing takes no capacity from enforcing.
#[derive(Debug)]
pub(crate) struct Observer {
    slots: Arc<Semaphore>,
    budget: BufferBudget,
    namespace: String,
}

impl Observer {
    /// The suffix of the namespace of observed keys. No other namespace may have it, so that an observed key is
    /// never replayed to a caller.
    pub(crate) const SUFFIX: &str = ":observed";

    pub(crate) fn new(namespace: &str, buffer_bytes: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(MAX_OBSERVED)),
            budget: BufferBudget::new(buffer_bytes / 4),
            namespace: format!("{namespace}{}", Self::SUFFIX),
        }
    }
}

pub(crate) async fn observe<S, B, R>(
    state: Arc<LayerState>,
    keyed: KeyedRequest,
    mut call: Box<InnerCall<S>>,
    body: B,
) -> ServiceResult<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes>,
{
    call.parts.extensions.insert(keyed.unprotected(Mode::Observe));
    let Ok(slot) = state.observer.slots.clone().try_acquire_owned() else {
        count_observed("dropped");
        call.ready().await?;
        return Ok((*call).pass(RequestBody::passed(body)).await?.map(ResponseBody::inner));
    };
    let copy = BodyCopy::new(keyed.route.policy.max_request_bytes, state.observer.budget.permit());
    if body.is_end_stream() {
        copy.end();
    }
    let parts = call.parts.clone();
    call.ready().await?;
    let response = (*call).pass(RequestBody::copied(body, copy.clone())).await;
    let verdict = match &response {
        Ok(response) => {
            let draft = OutcomeDraft::bare(response, &keyed.route.policy);
            draft.verdict(core::Body::Omitted { length: 0 })
        }
        Err(_) => Verdict::Retry(WorkError::retry("the inner service failed")),
    };
    tokio::spawn(count(state, keyed, parts, copy, verdict, slot));
    Ok(response?.map(ResponseBody::inner))
}

async fn count(
    state: Arc<LayerState>,
    keyed: KeyedRequest,
    parts: Parts,
    copy: BodyCopy,
    verdict: Verdict,
    _slot: OwnedSemaphorePermit,
) {
    count_observed(match trial(&state.observer, &keyed, &parts, &copy, verdict).await {
        Ok(Trial::First) => "first",
        Ok(Trial::Replay) => "replay",
        Ok(Trial::Mismatch) => "fingerprint-mismatch",
        Ok(Trial::Busy) => "in-progress",
        Ok(Trial::Other) => "other",
        Err(reason) => reason,
    });
}

async fn trial(
    observer: &Observer,
    keyed: &KeyedRequest,
    parts: &Parts,
    copy: &BodyCopy,
    verdict: Verdict,
) -> Result<Trial, &'static str> {
    let KeyedRequest { route, scope, key, .. } = keyed;
    let body = copy.take()?;
    let key = match key {
        Some(key) => key.clone(),
        None => {
            let found = route.find_key(scope, parts, &body).map_err(|problem| problem.name)?;
            found.ok_or("key-missing")?
        }
    };
    let fingerprint = fingerprint(parts, &body, &route.policy);
    let key = key.in_namespace(&observer.namespace).map_err(|_| "key-invalid")?;
    route.engine.trial(&key, &fingerprint, verdict).await.map_err(|_| "store-unavailable")
}
