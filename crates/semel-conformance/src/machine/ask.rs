//! From calls to the methods of a store, and back.

use semel_core::{Result, Store};

use super::{
    Verdict,
    model::{Answer, Call},
};

/// The answer, or that the store failed.
pub(super) fn failed<T>(step: &str, answer: Result<T>) -> Verdict<T> {
    answer.map_err(|error| format!("the store failed at {step}: {error} ({error:?})"))
}

/// Makes one call.
pub(super) async fn ask(store: &dyn Store, call: &Call) -> Verdict<Answer> {
    match call {
        Call::Claim(request) => failed("claim", store.claim(request).await).map(Answer::Claim),
        Call::Renew(request) => failed("renew", store.renew(request).await).map(Answer::Renewal),
        Call::Complete(request) => {
            failed("complete", store.complete(request).await).map(Answer::Completion)
        }
        Call::Release(request) => {
            failed("release", store.release(request).await).map(Answer::Release)
        }
        Call::Abandon(request) => {
            failed("abandon", store.abandon(request).await).map(Answer::Abandonment)
        }
        Call::Resolve(request) => {
            failed("resolve", store.resolve(request).await).map(Answer::Resolution)
        }
        Call::Erase(key) => failed("erase", store.erase(key).await).map(Answer::Erasure),
        Call::Forget(key) => failed("forget", store.forget(key).await).map(Answer::Forgetting),
    }
}

/// Collects the requests of one kind, asks for them in one batch and wraps the answers.
macro_rules! in_one_batch {
    ($store:ident.$many:ident($calls:ident: $kind:ident) -> $answer:ident) => {{
        let request = |call: &Call| match call {
            Call::$kind(request) => Some(request.clone()),
            _ => None,
        };
        let requests: Vec<_> = $calls.iter().filter_map(request).collect();
        let answers = $store.$many(&requests).await.into_iter();
        answers.map(|answer| failed(stringify!($many), answer).map(Answer::$answer)).collect()
    }};
}

/// A batch of calls of one kind; the kind of the first decides.
pub(super) async fn ask_many(store: &dyn Store, calls: &[Call]) -> Verdict<Vec<Answer>> {
    match calls.first() {
        Some(Call::Claim(_)) | None => in_one_batch!(store.claim_many(calls: Claim) -> Claim),
        Some(Call::Renew(_)) => in_one_batch!(store.renew_many(calls: Renew) -> Renewal),
        Some(Call::Complete(_)) => {
            in_one_batch!(store.complete_many(calls: Complete) -> Completion)
        }
        Some(Call::Release(_)) => in_one_batch!(store.release_many(calls: Release) -> Release),
        Some(other) => Err(format!("there are no batches of {other:?}")),
    }
}
