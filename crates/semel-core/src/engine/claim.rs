//! Claims a key: sends the claim, repeats it until the reply is definite, and gives back a grant that comes too late.

use std::{slice, time::Duration};

use super::{
    Engine, release_on_drop::ReleaseOnDrop, settle::MIN_PATIENCE, wait_for_owner::pause_within,
};
use crate::{
    Claim, ClaimRequest, Error, ErrorKind, Policy, Result, background,
    layers::circuit_breaker::store_replied, sync::Instant,
};

/// How long a store that is known to be down may take to reply. It is called all the same, since a cache or a front may
/// have the outcome.
const DOWN_PATIENCE: Duration = Duration::from_millis(250);
/// The least time that the last try of a claim has.
const LAST_TRY: Duration = Duration::from_millis(100);

/// A claim with its reply. Its instants are real ones even where a test has paused tokio's clock.
pub(super) struct ClaimCall {
    pub(super) request: Box<ClaimRequest>,
    pub(super) reply: Result<Claim>,
    /// When the claim was first sent: `max_run` counts from here.
    pub(super) began: Instant,
    /// When the call that got the reply was sent: the lease counts from here.
    pub(super) sent: Instant,
    pub(super) release_on_drop: ReleaseOnDrop,
}

impl Engine {
    /// Claims until the reply is definite. All tries have one nonce, so that the store recognises a claim whose reply
    /// was lost (T2).
    pub(super) async fn claim(self, request: Box<ClaimRequest>) -> ClaimCall {
        let mut release_on_drop = ReleaseOnDrop::new(self.clone(), &request);
        let began = Instant::now();
        let reply = self.send_claim(&request, self.patience(began), &mut release_on_drop).await;
        let claim = ClaimCall { request, reply, began, sent: began, release_on_drop };
        match &claim.reply {
            Ok(_) => claim,
            Err(_) => Box::pin(self.retry_claim(claim)).await,
        }
    }

    /// Repeats a claim whose reply is not definite, until [`Policy::store_timeout`] is over or the store is known to be
    /// down.
    pub(super) async fn retry_claim(self, mut claim: ClaimCall) -> ClaimCall {
        let mut tries = 0;
        loop {
            let Err(error) = &claim.reply else { return claim };
            if !error.kind().is_indefinite() || claim.release_on_drop.is_disarmed() {
                return claim;
            }
            let left = self.policy.store_timeout.saturating_sub(claim.began.elapsed());
            if left.is_zero() || self.is_store_down() {
                return claim;
            }
            pause_within(&mut tries, left).await;
            let patience = self.patience(claim.began);
            self.resend_claim(&mut claim, patience).await;
        }
    }

    pub(super) async fn resend_claim(&self, claim: &mut ClaimCall, patience: Duration) {
        claim.sent = Instant::now();
        claim.reply = self.send_claim(&claim.request, patience, &mut claim.release_on_drop).await;
    }

    /// How long a claim that was first sent at `began` waits for its next reply.
    pub(super) fn patience(&self, began: Instant) -> Duration {
        let (policy, elapsed) = (&self.policy, began.elapsed());
        if !self.inner.info.shared {
            return policy.wait.max(policy.store_timeout).saturating_sub(elapsed).max(MIN_PATIENCE);
        }
        let left = policy.store_timeout.saturating_sub(elapsed);
        let left = left.max(LAST_TRY.min(policy.store_timeout));
        if self.is_store_down() { left.min(DOWN_PATIENCE) } else { left }
    }

    fn is_store_down(&self) -> bool {
        self.inner.circuit.as_ref().is_some_and(|circuit| circuit.is_open())
    }

    /// Counts one claim call in the circuit breaker; `replies` is empty if the call timed out. A reply from a cache in
    /// this process says nothing about the store.
    pub(super) fn count_claim_call(&self, replies: &[Result<Claim>]) {
        let Some(circuit) = &self.inner.circuit else { return };
        let is_cached = |reply: &_| matches!(reply, Ok(Claim::Replay(replay)) if replay.cached);
        if !replies.is_empty() && replies.iter().all(is_cached) {
            return;
        }
        let answered = replies.iter().any(|reply| store_replied(reply) && !is_cached(reply));
        // Routes share the circuit breaker: a route with a short timeout must not open it for the others.
        circuit.count_within(answered, self.policy.store_timeout.max(Policy::STORE_TIMEOUT));
    }

    /// One call to the store. If its reply does not come in time, the claim is given up, and a grant that comes later
    /// is given back. So "the work did not run" stays true for the caller that gets the timeout.
    async fn send_claim(
        &self,
        request: &ClaimRequest,
        patience: Duration,
        release_on_drop: &mut ReleaseOnDrop,
    ) -> Result<Claim> {
        let on_late_reply = self.on_late_reply(request);
        let (store, request) = (self.inner.store.clone(), request.clone());
        // Through the pointer: `Arc` is a store itself, and would box the call once more.
        let call = Box::pin(async move { (*store).claim(&request).await });
        match background::timeout_without_cancel(patience, call, on_late_reply).await {
            Some(reply) => {
                self.count_claim_call(slice::from_ref(&reply));
                release_on_drop.claim_replied(&reply);
                reply
            }
            None => {
                self.count_claim_call(&[]);
                release_on_drop.claim_timed_out();
                Err(claim_timed_out())
            }
        }
    }

    /// What to do with a reply that comes after its caller has given up.
    pub(super) fn on_late_reply(
        &self,
        request: &ClaimRequest,
    ) -> impl FnOnce(Result<Claim>) + Send + 'static {
        let (engine, key, nonce) = (self.clone(), request.key, request.nonce);
        // A `ReleaseOnDrop` made outside the closure would release the key when the closure is dropped unused.
        move |reply| {
            // A store that replies late is slow, not down.
            if store_replied(&reply) {
                engine.count_claim_call(slice::from_ref(&reply));
            }
            ReleaseOnDrop::late_reply(engine, key, nonce, &reply);
        }
    }
}

pub(super) fn claim_timed_out() -> Error {
    Error::new(ErrorKind::Unavailable, "the store did not answer in time (store_timeout)")
}
