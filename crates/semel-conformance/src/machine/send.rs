//! Sends step requests to a store.

use semel_core::{Result, Store};

use super::{
    CheckResult,
    model::{StepReply, StepRequest},
};

/// The reply, or an error that names the step at which the store failed.
pub(super) fn expect_reply<T>(step: &str, reply: Result<T>) -> CheckResult<T> {
    reply.map_err(|error| format!("the store failed at {step}: {error} ({error:?})"))
}

/// Sends one request.
pub(super) async fn send(store: &dyn Store, request: &StepRequest) -> CheckResult<StepReply> {
    match request {
        StepRequest::Claim(request) => {
            expect_reply("claim", store.claim(request).await).map(StepReply::Claim)
        }
        StepRequest::Renew(request) => {
            expect_reply("renew", store.renew(request).await).map(StepReply::Renewal)
        }
        StepRequest::Complete(request) => {
            expect_reply("complete", store.complete(request).await).map(StepReply::Completion)
        }
        StepRequest::Release(request) => {
            expect_reply("release", store.release(request).await).map(StepReply::Release)
        }
        StepRequest::Abandon(request) => {
            expect_reply("abandon", store.abandon(request).await).map(StepReply::Abandonment)
        }
        StepRequest::Resolve(request) => {
            expect_reply("resolve", store.resolve(request).await).map(StepReply::Resolution)
        }
        StepRequest::Erase(key) => {
            expect_reply("erase", store.erase(key).await).map(StepReply::Erasure)
        }
        StepRequest::Forget(key) => {
            expect_reply("forget", store.forget(key).await).map(StepReply::Forgetting)
        }
    }
}

/// Collects the requests of one kind, sends them in one batch and wraps the replies.
macro_rules! in_one_batch {
    ($store:ident.$many:ident($requests:ident: $kind:ident) -> $reply:ident) => {{
        let request = |request: &StepRequest| match request {
            StepRequest::$kind(request) => Some(request.clone()),
            _ => None,
        };
        let requests: Vec<_> = $requests.iter().filter_map(request).collect();
        let replies = $store.$many(&requests).await.into_iter();
        replies.map(|reply| expect_reply(stringify!($many), reply).map(StepReply::$reply)).collect()
    }};
}

/// Sends a batch of requests of one kind, which is that of the first request.
pub(super) async fn send_batch(
    store: &dyn Store,
    requests: &[StepRequest],
) -> CheckResult<Vec<StepReply>> {
    match requests.first() {
        Some(StepRequest::Claim(_)) | None => {
            in_one_batch!(store.claim_many(requests: Claim) -> Claim)
        }
        Some(StepRequest::Renew(_)) => in_one_batch!(store.renew_many(requests: Renew) -> Renewal),
        Some(StepRequest::Complete(_)) => {
            in_one_batch!(store.complete_many(requests: Complete) -> Completion)
        }
        Some(StepRequest::Release(_)) => {
            in_one_batch!(store.release_many(requests: Release) -> Release)
        }
        Some(other) => Err(format!("there are no batches of {other:?}")),
    }
}
