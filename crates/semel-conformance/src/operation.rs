//! A test operation with a key of its own, and every step of the protocol on it.
//!
//! A step that fails is a broken promise too: these functions panic instead of returning an error.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Decision,
    Effect, Erasure, Fingerprint, Forgetting, KeyHash, Labels, Lease, Nonce, OnLostOwner, Outcome,
    Owner, Record, Release, ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest,
    Result, State, Store, Terms,
};

use crate::{LEASE, Time};

/// Longer than any promise takes.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// An operation. Clones are contenders for the same key.
#[derive(Clone, Debug)]
pub(crate) struct TestOperation<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) key: KeyHash,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) terms: Terms,
    pub(crate) labels: Option<Labels>,
}

/// The key, fingerprint and terms of the operation.
impl<'a> TestOperation<'a> {
    /// A random key with a long lease and retention, Rerun, and no cap.
    pub(crate) fn new(store: &'a dyn Store) -> Self {
        let terms = Terms {
            lease: LONG.into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: LONG.into(),
            failure_retention: LONG.into(),
        };
        let key = KeyHash::from_bytes(rand::random());
        Self { store, key, fingerprint: Fingerprint::of_bytes(b"this"), terms, labels: None }
    }

    /// The same key with another fingerprint.
    pub(crate) fn with_other_fingerprint(&self) -> Self {
        Self { fingerprint: Fingerprint::of_bytes(b"something else"), ..self.clone() }
    }

    pub(crate) fn key(self, key: KeyHash) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn labels(self, labels: Labels) -> Self {
        Self { labels: Some(labels), ..self }
    }

    pub(crate) fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease.into();
        self
    }

    pub(crate) fn hold(mut self) -> Self {
        self.terms.on_lost_owner = OnLostOwner::Hold;
        self
    }

    pub(crate) fn rerun(mut self) -> Self {
        self.terms.on_lost_owner = OnLostOwner::Rerun;
        self
    }

    pub(crate) fn cap(mut self, attempts: u32) -> Self {
        self.terms.max_attempts = NonZeroU32::new(attempts);
        self
    }

    pub(crate) fn retention(mut self, retention: Duration) -> Self {
        self.terms.retention = retention.into();
        self
    }

    pub(crate) fn failure_retention(mut self, retention: Duration) -> Self {
        self.terms.failure_retention = retention.into();
        self
    }
}

/// The steps.
impl TestOperation<'_> {
    /// A claim with a new nonce.
    pub(crate) fn request(&self) -> ClaimRequest {
        ClaimRequest {
            key: self.key,
            fingerprint: self.fingerprint,
            nonce: Nonce::random(),
            terms: self.terms,
            labels: self.labels.clone(),
        }
    }

    pub(crate) async fn claim(&self) -> Claim {
        expect_ok("claim", self.store.claim(&self.request()).await)
    }

    /// Claims again with the nonce of `owner`: its reply was lost, or a late copy arrives.
    pub(crate) async fn claim_as(&self, owner: Owner) -> Claim {
        let request = ClaimRequest { nonce: owner.nonce, ..self.request() };
        expect_ok("claim", self.store.claim(&request).await)
    }

    pub(crate) async fn renew(&self, owner: Owner) -> Renewal {
        self.renew_within(owner, LONG).await
    }

    pub(crate) async fn renew_within(&self, owner: Owner, max_run: Duration) -> Renewal {
        expect_ok("renew", self.store.renew(&RenewRequest::new(owner, max_run)).await)
    }

    pub(crate) async fn complete(&self, owner: Owner, outcome: &Arc<Outcome>) -> Completion {
        let request = CompleteRequest { owner, outcome: outcome.clone() };
        expect_ok("complete", self.store.complete(&request).await)
    }

    pub(crate) async fn release(&self, owner: Owner, effect: Effect) -> Release {
        expect_ok("release", self.store.release(&ReleaseRequest { owner, effect }).await)
    }

    pub(crate) async fn abandon(&self, owner: Owner, backoff: Duration) -> Abandonment {
        expect_ok("abandon", self.store.abandon(&AbandonRequest { owner, backoff }).await)
    }

    pub(crate) async fn resolve(&self, seen: &Record, decision: Decision) -> Resolution {
        let (seen_nonce, seen_token) = (seen.nonce, seen.token);
        let request = ResolveRequest { key: self.key, seen_nonce, seen_token, decision };
        expect_ok("resolve", self.store.resolve(&request).await)
    }

    pub(crate) async fn erase(&self) -> Erasure {
        expect_ok("erase", self.store.erase(&self.key).await)
    }

    pub(crate) async fn forget(&self) -> Forgetting {
        expect_ok("forget", self.store.forget(&self.key).await)
    }

    pub(crate) async fn get(&self) -> Option<Record> {
        expect_ok("get", self.store.get(&self.key).await).map(|sighting| sighting.record)
    }
}

/// Functions that bring the key into a state. Each panics if the store does not reach it.
impl TestOperation<'_> {
    pub(crate) async fn granted(&self) -> Lease {
        match self.claim().await {
            Claim::Granted(lease) => lease,
            reply => panic!("a claim that must be granted was answered {reply:?}"),
        }
    }

    pub(crate) async fn owned(&self) -> Owner {
        self.granted().await.owner
    }

    /// Owned, and the lease has ended. The lease must be [`LEASE`] at most.
    pub(crate) async fn lapsed(&self, time: &dyn Time) -> Owner {
        let owner = self.owned().await;
        time.pass(LEASE).await;
        owner
    }

    /// Owned, and the owner is lost: the lease has ended, and so has the grace period of the claim that contested it.
    pub(crate) async fn lost(&self, time: &dyn Time) -> Owner {
        let owner = self.lapsed(time).await;
        self.contest(time).await;
        owner
    }

    /// Contests a key whose lease has ended, and lets the grace period pass.
    pub(crate) async fn contest(&self, time: &dyn Time) {
        let record = self.record().await;
        let grace = record.terms.grace_period().to_duration();
        // In hold mode, a purge of another test on the same store may have come first.
        if record.state == State::InProgress && !record.contested {
            let reply = self.claim().await;
            let is_contested = matches!(reply, Claim::Busy { remaining } if remaining <= grace);
            assert!(
                is_contested,
                "the first claim after the lease is busy for {grace:?}: {reply:?}"
            );
        }
        time.pass(grace).await;
    }

    pub(crate) async fn completed(&self, outcome: &Arc<Outcome>) -> Owner {
        let owner = self.owned().await;
        let reply = self.complete(owner, outcome).await;
        assert_eq!(reply, Completion::Recorded, "an owner could not record its outcome");
        owner
    }

    pub(crate) async fn released(&self, effect: Effect) -> Owner {
        let owner = self.owned().await;
        let reply = self.release(owner, effect).await;
        assert_eq!(reply, Release::Open, "an owner could not release its key");
        owner
    }

    /// On hold, because the owner abandoned it.
    pub(crate) async fn unknown(&self) -> Owner {
        let owner = self.owned().await;
        let reply = self.abandon(owner, Duration::ZERO).await;
        assert_eq!(reply, Abandonment::Unknown, "a key abandoned on hold is not Unknown");
        owner
    }

    /// Out of attempts after a release. The cap must be one.
    pub(crate) async fn dead(&self) -> Owner {
        let owner = self.released(Effect::Possible).await;
        assert_eq!(self.claim().await, Claim::Dead, "a key released at the cap is not Dead");
        owner
    }

    pub(crate) async fn record(&self) -> Record {
        self.get().await.unwrap_or_else(|| panic!("the record of {} is gone", self.key))
    }

    /// Asserts that the record is still `before`.
    pub(crate) async fn assert_unchanged(&self, before: &Record, promise: &str) {
        assert_eq!(self.record().await, *before, "{promise}");
    }
}

/// The reply of the store, which must not fail.
pub(crate) fn expect_ok<T>(step: &str, reply: Result<T>) -> T {
    reply.unwrap_or_else(|error| panic!("the store failed at {step}: {error} ({error:?})"))
}

/// A success with this body.
pub(crate) fn success(text: &'static str) -> Arc<Outcome> {
    Arc::new(Outcome::success(text))
}

/// A final failure.
pub(crate) fn failure() -> Arc<Outcome> {
    Arc::new(Outcome::failure("declined", "no"))
}

/// An owner with the token of `owner` and another nonce.
pub(crate) fn other_nonce(owner: Owner) -> Owner {
    Owner { nonce: Nonce::random(), ..owner }
}

/// An owner with the nonce of `owner` and another token.
pub(crate) fn other_token(owner: Owner) -> Owner {
    Owner { token: owner.token + 1, ..owner }
}

/// Asserts that a completed record expires about `retention` after its completion.
pub(crate) fn assert_kept_for(record: &Record, retention: Duration) {
    let (Some(completed_at), Some(expires_at)) = (record.completed_at, record.expires_at) else {
        panic!("a completed record says when it was completed and when it expires");
    };
    let kept = expires_at.since(completed_at);
    let near = kept.abs_diff(retention) < Duration::from_secs(5);
    assert!(near, "kept for {kept:?} from completion, not for {retention:?}");
}
