//! The claim of a failover: which store gets it, and which grants are counted as unprotected.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    FailbackWindow, FailoverInner,
    claim_origins::{ClaimOrigin, ClaimOrigins},
};
use crate::{
    Claim, ClaimRequest, Effect, KeyHash, Observed, Owner, ReleaseRequest, Result, Sighting, State,
    Store, Terms, background,
    layers::circuit_breaker::store_replied,
    telemetry::{UnprotectedReason, unprotected},
};

/// A store that takes longer counts as unreachable for this call. Shorter than
/// [`Policy::STORE_TIMEOUT`](crate::Policy), so that the caller still waits when the secondary is called.
const PATIENCE: Duration = Duration::from_millis(700);
/// The failback window is extended by this much more than needed, so that it is seldom extended.
const MARGIN: Duration = Duration::from_secs(600);
/// This long before the window ends, the node checks whether it may end.
const CLOSING: Duration = Duration::from_secs(60);

/// What the secondary says about a key before it is claimed.
enum OnSecondary {
    /// The secondary has no record that counts.
    Free,
    Held,
    NoReply,
}

impl<P: Store, S: Store + FailbackWindow> FailoverInner<P, S> {
    pub(super) async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        if self.primary_circuit.is_open() {
            return self.claim_without_primary(request).await;
        }
        let on_secondary = match self.window.must_read_secondary() {
            true => self.check_secondary(&request.key).await,
            false => OnSecondary::Free,
        };
        if matches!(on_secondary, OnSecondary::Held) {
            return self.claim_on_secondary(request).await;
        }
        let Some(reply) = self.claim_on_primary(request).await else {
            return self.claim_without_primary(request).await;
        };
        if let (OnSecondary::NoReply, Ok(Claim::Granted(_))) = (on_secondary, &reply) {
            self.unprotected.secondary_unasked.fetch_add(1, Relaxed);
            unprotected(UnprotectedReason::SecondaryUnasked);
        }
        reply
    }

    /// The primary's replies, if the secondary need not be read. A claim without a reply is repeated with the same
    /// nonce.
    pub(super) async fn claim_all_on_primary(
        &self,
        requests: &[ClaimRequest],
    ) -> Vec<Result<Claim>> {
        if self.primary_circuit.is_open() || self.window.must_read_secondary() {
            return Vec::new();
        }
        let (primary, batch) = (self.primary.clone(), requests.to_vec());
        let call = Box::pin(async move { primary.claim_many(&batch).await });
        let (primary, origins) = (self.primary.clone(), self.origins.clone());
        let late = move |replies: Vec<_>| {
            replies.iter().for_each(|reply| late_primary_reply(&primary, &origins, reply));
        };
        let replies = background::timeout_without_cancel(PATIENCE, call, late).await;
        if replies.is_none() {
            requests.iter().for_each(|request| self.origins.primary_timed_out(request.nonce));
        }
        let replies = replies.unwrap_or_default();
        self.primary_circuit.count(!replies.is_empty() && replies.iter().all(store_replied));
        for reply in &replies {
            self.remember_primary_grant(Some(reply));
        }
        replies
    }

    /// `None` if the primary does not reply.
    async fn claim_on_primary(&self, request: &ClaimRequest) -> Option<Result<Claim>> {
        let (primary, claim) = (self.primary.clone(), request.clone());
        let call = Box::pin(async move { primary.claim(&claim).await });
        let (primary, origins) = (self.primary.clone(), self.origins.clone());
        let late = move |reply| late_primary_reply(&primary, &origins, &reply);
        let reply = background::timeout_without_cancel(PATIENCE, call, late).await;
        if reply.is_none() {
            self.origins.primary_timed_out(request.nonce);
        }
        let reply = reply.filter(store_replied);
        self.primary_circuit.count(reply.is_some());
        self.remember_primary_grant(reply.as_ref());
        reply
    }

    /// Claims on the secondary without knowing what the primary has recorded. A grant counts as unprotected.
    async fn claim_without_primary(&self, request: &ClaimRequest) -> Result<Claim> {
        let reply = self.claim_on_secondary(request).await;
        if let Ok(Claim::Granted(_)) = &reply {
            self.unprotected.primary_unreachable.fetch_add(1, Relaxed);
            unprotected(UnprotectedReason::PrimaryUnreachable);
        }
        reply
    }

    /// Extends the failback window first, so that all nodes read the secondary for as long as this claim may count.
    async fn claim_on_secondary(&self, request: &ClaimRequest) -> Result<Claim> {
        let span = longest_validity(&request.terms);
        let reply = match self.extend_window(span).await {
            Ok(()) => self.secondary.claim(request).await,
            Err(error) => Err(error),
        };
        let late = match &reply {
            Ok(Claim::Granted(_)) => {
                self.origins.granted(request.nonce, ClaimOrigin::Secondary { span })
            }
            reply if store_replied(reply) => self.origins.refused(&request.nonce),
            _ => None,
        };
        if let Some(owner) = late {
            release_on_primary(&self.primary, owner);
        }
        reply
    }

    /// Extends the failback window before a step of an owner that the secondary granted, since the step makes its
    /// record count for longer. If that fails the step is still made, so that no lease or outcome is lost; the window
    /// is extended long before that is needed.
    pub(super) async fn extend_window_for(&self, owner: &Owner) {
        if let Some(ClaimOrigin::Secondary { span }) = self.origins.origin(&owner.nonce)
            && let Err(error) = self.extend_window(span.saturating_add(MARGIN / 2)).await
        {
            tracing::warn!(
                %error,
                key = %owner.key,
                "failover: cannot extend the failback window; other nodes may stop reading this key too early"
            );
        }
    }

    pub(super) async fn extend_window(&self, span: Duration) -> Result<()> {
        if self.window.covers(span) {
            return Ok(());
        }
        let read_at = Instant::now();
        let remaining = self.stored_window.extend_to(span.saturating_add(MARGIN)).await?;
        self.window.update(remaining, read_at);
        Ok(())
    }

    fn remember_primary_grant(&self, reply: Option<&Result<Claim>>) {
        if let Some(Ok(Claim::Granted(lease))) = reply {
            self.origins.granted(lease.owner.nonce, ClaimOrigin::Primary);
        }
    }

    async fn check_secondary(&self, key: &KeyHash) -> OnSecondary {
        match self.read_secondary(key).await {
            None => OnSecondary::NoReply,
            Some(None) => OnSecondary::Free,
            Some(Some(sighting)) if self.is_held(&sighting).await => OnSecondary::Held,
            Some(Some(_)) => OnSecondary::Free,
        }
    }

    /// `None` if the secondary does not reply.
    async fn read_secondary(&self, key: &KeyHash) -> Option<Option<Sighting>> {
        if self.secondary_circuit.is_open() {
            return None;
        }
        let (secondary, key) = (self.secondary.clone(), *key);
        let call = Box::pin(async move { secondary.get(&key).await });
        let reply = background::timeout_without_cancel(PATIENCE, call, drop).await;
        self.secondary_circuit.count(reply.as_ref().is_some_and(store_replied));
        reply?.ok()
    }

    /// True when the secondary's record still counts. A key that was released there, or whose owner was lost, may have
    /// been claimed on the primary since.
    async fn is_held(&self, Sighting { record, at }: &Sighting) -> bool {
        match record.state {
            State::Open => false,
            State::InProgress if record.is_leased(*at) => true,
            State::InProgress => {
                let on_primary = self.primary.get(&record.key).await;
                !matches!(on_primary, Ok(Some(sighting)) if sighting.record.state != State::Open)
            }
            State::Completed | State::Unknown | State::Dead | State::Erased => true,
        }
    }

    /// Reads the failback window. An Unknown record does not expire: while the secondary has one, the window is
    /// extended.
    pub(super) async fn read_window(&self) {
        let (stored, read_at) = (self.stored_window.clone(), Instant::now());
        let closes = self.window.must_read_secondary();
        let call = Box::pin(async move {
            let Some(remaining) = stored.remaining().await? else { return Ok(Duration::ZERO) };
            match closes && remaining < CLOSING && stored.stats().await?.unknown > 0 {
                true => stored.extend_to(CLOSING + MARGIN).await,
                false => Ok(remaining),
            }
        });
        if let Some(Ok(remaining)) = background::timeout_without_cancel(PATIENCE, call, drop).await
        {
            self.window.update(remaining, read_at);
        }
    }

    /// The record of a key, from the store that decides it.
    pub(super) async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        if self.primary_circuit.is_open() {
            return self.secondary.get(key).await;
        }
        if self.window.must_read_secondary()
            && let Some(Some(sighting)) = self.read_secondary(key).await
            && self.is_held(&sighting).await
        {
            return Ok(Some(sighting));
        }
        let reply = self.primary.get(key).await;
        self.primary_circuit.count(store_replied(&reply));
        if store_replied(&reply) { reply } else { self.secondary.get(key).await }
    }
}

/// How long a record with these terms may count after each step of its owner.
pub(super) fn longest_validity(terms: &Terms) -> Duration {
    let kept = terms.retention.max(terms.failure_retention).to_duration();
    kept.saturating_add(terms.lease.to_duration())
}

/// Handles a reply of the primary that came after its timeout.
fn late_primary_reply<P: Store>(
    primary: &Arc<Observed<P>>,
    origins: &ClaimOrigins,
    reply: &Result<Claim>,
) {
    if let Ok(Claim::Granted(lease)) = reply
        && origins.granted_late(lease.owner)
    {
        release_on_primary(primary, lease.owner);
    }
}

fn release_on_primary<P: Store>(primary: &Arc<Observed<P>>, owner: Owner) {
    let (primary, request) = (primary.clone(), ReleaseRequest { owner, effect: Effect::None });
    background::handle().spawn(async move { drop(primary.release(&request).await) });
}
