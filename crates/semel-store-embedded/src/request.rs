//! The requests to the writer and its replies: one kind for each step that may write.

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, Purged, Release, ReleaseRequest, RenewRequest, Renewal, Resolution,
    ResolveRequest,
};

/// A request to the writer.
#[derive(Debug)]
pub(crate) enum WriterRequest {
    Claim(ClaimRequest),
    Renew(RenewRequest),
    Complete(CompleteRequest),
    Release(ReleaseRequest),
    Abandon(AbandonRequest),
    Resolve(ResolveRequest),
    Erase(KeyHash),
    Forget(KeyHash),
    Purge(usize),
}

/// The reply to a request of the same kind.
#[derive(Debug)]
pub(crate) enum WriterReply {
    Claim(Claim),
    Renew(Renewal),
    Complete(Completion),
    Release(Release),
    Abandon(Abandonment),
    Resolve(Resolution),
    Erase(Erasure),
    Forget(Forgetting),
    Purge(Purged),
}
