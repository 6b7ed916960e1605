//! One attempt: calls the handler under a lease, and turns its answer into a verdict about the key.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use futures_util::{FutureExt, future::poll_fn};
use http::{Request, Response, header::CONTENT_TYPE, request::Parts, response};
use http_body::Body;
use semel_core::{self as core, Context, Verdict, WorkError};
use tokio::sync::oneshot;
use tower_service::Service;

use crate::{
    Idempotency, Mode,
    body::{
        BodyRelay, BoxError, Collected, Pieces, RelayEnd, RequestBody, ResponseBody, WholeBody,
        collect,
    },
    budget::Permit,
    header::{mark_omitted, strip_semel_headers, strip_semel_trailers},
    outcome::{OutcomeDraft, body_for_record},
    service::ServiceResult,
    state::PreparedRoute,
};

/// A request without its body, and the inner service for it. Callers box it, since many futures carry it.
pub(crate) struct InnerCall<S> {
    pub(crate) inner: S,
    pub(crate) parts: Parts,
}

impl<S> InnerCall<S> {
    /// Waits until the inner service is ready.
    pub(crate) async fn ready<B>(&mut self) -> Result<(), S::Error>
    where
        S: Service<Request<RequestBody<B>>>,
    {
        poll_fn(|cx| self.inner.poll_ready(cx)).await
    }

    /// [`InnerCall::ready`], unless the lease is lost first.
    async fn ready_within<B>(&mut self, context: &Context) -> Option<Result<(), S::Error>>
    where
        S: Service<Request<RequestBody<B>>>,
    {
        if let Some(ready) = self.ready().now_or_never() {
            return Some(ready);
        }
        tokio::select! {
            biased;
            () = context.lease_lost() => None,
            ready = self.ready() => Some(ready),
        }
    }

    /// Passes on a request whose body was read to find a key and has none.
    pub(crate) async fn pass_with_permit<B, R>(
        mut self: Box<Self>,
        body: RequestBody<B>,
        permit: Permit,
    ) -> ServiceResult<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    {
        self.ready().await?;
        let answered = (*self).pass(body).await;
        drop(permit);
        Ok(answered?.map(ResponseBody::inner))
    }

    pub(crate) fn pass<B>(self, body: RequestBody<B>) -> S::Future
    where
        S: Service<Request<RequestBody<B>>>,
    {
        let Self { mut inner, parts } = self;
        inner.call(Request::from_parts(parts, body))
    }
}

/// One attempt at a request.
pub(crate) struct HttpAttempt<S, B, R, E> {
    pub(crate) call: Box<InnerCall<S>>,
    pub(crate) body: RequestBody<B>,
    pub(crate) route: Arc<PreparedRoute>,
    /// For the body of the request. Held until the handler has answered: the handler may take the bytes out of
    /// the body and keep them.
    pub(crate) request_permit: Permit,
    /// For the body of the answer.
    pub(crate) response_permit: Permit,
    pub(crate) sender: oneshot::Sender<HandlerAnswer<R, E>>,
}

/// The handler's own answer, with all its headers. Only the caller whose request ran gets it.
pub(crate) enum HandlerAnswer<R, E> {
    /// Sent to the caller once it is recorded.
    Whole(Response<ResponseBody<R>>),
    /// Sent to the caller now. Its body is relayed while the operation runs.
    Streamed(Response<ResponseBody<R>>),
    /// The inner service failed.
    Failed(E),
}

impl<S, B, R> HttpAttempt<S, B, R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    pub(crate) async fn run(self: Box<Self>, context: Context) -> Verdict {
        let Self { mut call, body, route, request_permit, response_permit, sender } = *self;
        call.parts.extensions.insert(Idempotency::new(context.clone(), Mode::Enforce));
        match call.ready_within(&context).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                let _ = sender.send(HandlerAnswer::Failed(error));
                return Verdict::NoEffect(WorkError::no_effect("the inner service was not ready"));
            }
            // Another process may own the key by now, so the handler must not start here.
            None => return Verdict::NoEffect(WorkError::no_effect("the lease was lost")),
        }
        let answered = (*call).pass(body).await;
        drop(request_permit);
        let mut response = match answered {
            Ok(response) => response,
            Err(error) => {
                // An error here means that the caller is gone.
                let _ = sender.send(HandlerAnswer::Failed(error));
                return Verdict::Retry(WorkError::retry("the inner service failed"));
            }
        };
        let omitted = strip_semel_headers(&mut response);
        let draft = OutcomeDraft::of(&response, &route.policy);
        let (head, body) = response.into_parts();
        let mut body = pin!(body);
        let limit = match route.policy.stream || is_stream(&head) {
            false => Some(route.policy.max_response_bytes),
            // A limit of 0 distinguishes an omitted body, which is empty, from a present one.
            true => omitted.map(|_| 0),
        };
        let collected = match limit {
            Some(limit) => collect(body.as_mut(), limit, response_permit).await,
            None => {
                drop(response_permit);
                Collected::TooLarge(Pieces::new())
            }
        };
        let (pieces, error) = match collected {
            Collected::Whole(whole) => return finish_whole(head, whole, omitted, draft, sender),
            Collected::TooLarge(pieces) | Collected::NoCapacity(pieces) => (pieces, None),
            Collected::Broken(pieces, error) => (pieces, Some(error)),
        };
        let (relay, relayed) = BodyRelay::new(length(&pieces, &*body));
        let response = Response::from_parts(head, ResponseBody::relayed(relayed));
        let _ = sender.send(HandlerAnswer::Streamed(response));
        // Boxed, because most answers are whole and do not need this large future.
        match Box::pin(relay.send_body(pieces, body, error, context.lease_lost())).await {
            Some(RelayEnd { length, trailers }) => {
                draft.trailers(trailers.as_ref()).verdict(core::Body::Omitted { length })
            }
            None => draft.broken_off(),
        }
    }
}

fn finish_whole<R, E>(
    mut head: response::Parts,
    mut whole: WholeBody,
    omitted: Option<u64>,
    draft: OutcomeDraft,
    sender: oneshot::Sender<HandlerAnswer<R, E>>,
) -> Verdict {
    if let Some(trailers) = &mut whole.trailers {
        strip_semel_trailers(trailers);
    }
    let draft = draft.trailers(whole.trailers.as_deref());
    let body = match omitted {
        // An inner semel replayed an answer without its body. The empty body must not be recorded as the body.
        Some(length) if whole.bytes.is_empty() => {
            mark_omitted(&mut head.headers, length);
            core::Body::Omitted { length }
        }
        Some(_) | None => body_for_record(&whole),
    };
    let _ =
        sender.send(HandlerAnswer::Whole(Response::from_parts(head, ResponseBody::whole(whole))));
    draft.verdict(body)
}

/// The length of the whole body, where it is known.
fn length(pieces: &Pieces, body: &impl Body) -> Option<u64> {
    let read: usize = pieces.iter().map(Bytes::len).sum();
    body.size_hint().exact().map(|left| left + read as u64)
}

/// True for media types whose answers come piece by piece and must not be held back until their end.
fn is_stream(head: &response::Parts) -> bool {
    const STREAMS: [&str; 5] = [
        "text/event-stream",
        "application/x-ndjson",
        "application/jsonl",
        "application/json-seq",
        "multipart/x-mixed-replace",
    ];
    let Some(Ok(media_type)) = head.headers.get(CONTENT_TYPE).map(|value| value.to_str()) else {
        return false;
    };
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    let grpc = media_type.get(..16).is_some_and(|it| it.eq_ignore_ascii_case("application/grpc"));
    grpc || STREAMS.iter().any(|stream| media_type.eq_ignore_ascii_case(stream))
}
