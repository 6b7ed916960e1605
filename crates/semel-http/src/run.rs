//! The run: calls the handler, and says what its answer means for the key.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE, response};
use http_body::Body;
use semel_core::{self as core, Context, Verdict, WorkError};
use tokio::sync::oneshot;
use tower_service::Service;

use crate::{
    Idempotency,
    body::{BoxError, Collected, Pieces, Relay, RequestBody, ResponseBody, Whole, collect},
    budget::{Budget, Permit},
    plan::Route,
    replay::{Draft, for_record},
};

/// One attempt at a request.
pub(crate) struct Run<S, B, R, E> {
    pub(crate) inner: S,
    pub(crate) request: Request<RequestBody<B>>,
    pub(crate) route: Arc<Route>,
    pub(crate) budget: Budget,
    /// For the body of the request. Held until the handler has answered: it may take the bytes out of
    /// the body, and keep them.
    pub(crate) permit: Permit,
    pub(crate) tell: oneshot::Sender<Told<R, E>>,
}

/// What the first caller is told beside the outcome: the handler's own answer, with all its headers.
pub(crate) enum Told<R, E> {
    /// To be shown once it is recorded.
    Whole(Response<ResponseBody<R>>),
    /// To be shown now: its body is relayed while the operation runs.
    Early(Response<ResponseBody<R>>),
    /// The inner service failed.
    Failed(E),
}

impl<S, B, R> Run<S, B, R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    pub(crate) async fn attempt(self, context: Context) -> Verdict {
        let Self { mut inner, mut request, route, budget, permit, tell } = self;
        request.extensions_mut().insert(Idempotency::new(context.clone()));
        let answered = inner.call(request).await;
        drop(permit);
        let response = match answered {
            Ok(response) => response,
            Err(error) => {
                // A caller that is gone does not mind.
                let _ = tell.send(Told::Failed(error));
                return Verdict::Retry(WorkError::retry("the inner service failed"));
            }
        };
        let (head, body) = response.into_parts();
        let (mut body, draft) = (pin!(body), Draft::of(&head, &route.policy));
        let collected = if route.policy.stream || is_stream(&head) {
            Collected::TooLarge(Pieces::new())
        } else {
            collect(body.as_mut(), route.policy.max_response_bytes, budget.permit()).await
        };
        let (pieces, error) = match collected {
            Collected::Whole(whole) => return told_whole(head, whole, draft, tell),
            Collected::TooLarge(pieces) | Collected::NoRoom(pieces) => (pieces, None),
            Collected::Broken(pieces, error) => (pieces, Some(error)),
        };
        let (mut relay, relayed) = Relay::new(length(&pieces, &*body));
        let response = Response::from_parts(head, ResponseBody::relayed(relayed));
        let _ = tell.send(Told::Early(response));
        relay.pieces(pieces).await;
        let ended = match error {
            None => relay.rest(body, || context.is_lease_lost()).await,
            Some(error) => relay.failed(error).await,
        };
        match ended {
            Some(length) => draft.verdict(core::Body::Omitted { length }),
            None => Verdict::Indeterminate(WorkError::indeterminate("the answer broke off")),
        }
    }
}

fn told_whole<R, E>(
    head: response::Parts,
    whole: Whole,
    draft: Draft,
    tell: oneshot::Sender<Told<R, E>>,
) -> Verdict {
    let draft = match &whole.trailers {
        Some(trailers) => draft.trailers(trailers),
        None => draft,
    };
    let body = for_record(&whole.bytes);
    let _ = tell.send(Told::Whole(Response::from_parts(head, ResponseBody::whole(whole))));
    draft.verdict(body)
}

/// The length of the whole body, where it is known.
fn length(pieces: &Pieces, body: &impl Body) -> Option<u64> {
    let read: usize = pieces.iter().map(Bytes::len).sum();
    body.size_hint().exact().map(|left| left + read as u64)
}

/// Answers that come piece by piece, and must not be held back until their end.
fn is_stream(head: &response::Parts) -> bool {
    const STREAMS: [&str; 6] = [
        "text/event-stream",
        "application/x-ndjson",
        "application/jsonl",
        "application/json-seq",
        "application/grpc",
        "multipart/x-mixed-replace",
    ];
    let Some(Ok(media_type)) = head.headers.get(CONTENT_TYPE).map(|value| value.to_str()) else {
        return false;
    };
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    STREAMS.iter().any(|stream| media_type.eq_ignore_ascii_case(stream))
}
