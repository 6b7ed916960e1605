//! The claim: where a key is at home, and what cannot be protected.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    FailbackWindow, Inner,
    claim_origins::{Home, Homes},
};
use crate::{
    Claim, ClaimRequest, Effect, KeyHash, Observed, Owner, ReleaseRequest, Result, Sighting, State,
    Store, Terms, background,
    layers::circuit_breaker::is_answer,
    telemetry::{UnprotectedReason, unprotected},
};

/// A store that takes longer is unreachable for this call. Shorter than [`Policy::STORE_TIMEOUT`](crate::Policy): the
/// caller still waits when the secondary is asked.
const PATIENCE: Duration = Duration::from_millis(700);
/// The window is widened by this much more than is needed, so that it is seldom widened.
const MARGIN: Duration = Duration::from_secs(600);
/// Before the window closes it is looked whether it may.
const CLOSING: Duration = Duration::from_secs(60);

/// What is known of a key before it is claimed.
enum Asked {
    /// The secondary knows nothing of it.
    Free,
    /// The secondary has it.
    Held,
    /// The secondary did not answer.
    InVain,
}

impl<P: Store, S: Store + FailbackWindow> Inner<P, S> {
    pub(super) async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        if self.primary_circuit.is_open() {
            return self.claim_blindly(request).await;
        }
        let asked = match self.window.must_read_secondary() {
            true => self.ask(&request.key).await,
            false => Asked::Free,
        };
        if matches!(asked, Asked::Held) {
            return self.claim_on_secondary(request).await;
        }
        let Some(answer) = self.claim_on_primary(request).await else {
            return self.claim_blindly(request).await;
        };
        if let (Asked::InVain, Ok(Claim::Granted(_))) = (asked, &answer) {
            self.unprotected.secondary_unasked.fetch_add(1, Relaxed);
            unprotected(UnprotectedReason::SecondaryUnasked);
        }
        answer
    }

    /// The primary's answers, if it alone is asked; what is not there is asked for again, by the same nonce.
    pub(super) async fn claim_all_on_primary(
        &self,
        requests: &[ClaimRequest],
    ) -> Vec<Result<Claim>> {
        if self.primary_circuit.is_open() || self.window.must_read_secondary() {
            return Vec::new();
        }
        let (primary, asked) = (self.primary.clone(), requests.to_vec());
        let call = Box::pin(async move { primary.claim_many(&asked).await });
        let (primary, homes) = (self.primary.clone(), self.homes.clone());
        let late = move |answers: Vec<_>| {
            answers.iter().for_each(|answer| came_late(&primary, &homes, answer));
        };
        let answers = background::timeout_without_cancel(PATIENCE, call, late).await;
        if answers.is_none() {
            requests.iter().for_each(|request| self.homes.unheard(request.nonce));
        }
        let answers = answers.unwrap_or_default();
        self.primary_circuit.count(!answers.is_empty() && answers.iter().all(is_answer));
        for answer in &answers {
            self.remember(Some(answer));
        }
        answers
    }

    /// `None`: no answer.
    async fn claim_on_primary(&self, request: &ClaimRequest) -> Option<Result<Claim>> {
        let (primary, asked) = (self.primary.clone(), request.clone());
        let call = Box::pin(async move { primary.claim(&asked).await });
        let (primary, homes) = (self.primary.clone(), self.homes.clone());
        let late = move |answer| came_late(&primary, &homes, &answer);
        let answer = background::timeout_without_cancel(PATIENCE, call, late).await;
        if answer.is_none() {
            self.homes.unheard(request.nonce);
        }
        let answer = answer.filter(is_answer);
        self.primary_circuit.count(answer.is_some());
        self.remember(answer.as_ref());
        answer
    }

    /// While nobody knows what the primary has.
    async fn claim_blindly(&self, request: &ClaimRequest) -> Result<Claim> {
        let answer = self.claim_on_secondary(request).await;
        if let Ok(Claim::Granted(_)) = &answer {
            self.unprotected.primary_unreachable.fetch_add(1, Relaxed);
            unprotected(UnprotectedReason::PrimaryUnreachable);
        }
        answer
    }

    /// All nodes are to ask for as long as what is claimed here may count, before it is claimed.
    async fn claim_on_secondary(&self, request: &ClaimRequest) -> Result<Claim> {
        let span = counted(&request.terms);
        let answer = match self.widen(span).await {
            Ok(()) => self.secondary.claim(request).await,
            Err(error) => Err(error),
        };
        let late = match &answer {
            Ok(Claim::Granted(_)) => self.homes.granted(request.nonce, Home::Secondary { span }),
            answer if is_answer(answer) => self.homes.refused(&request.nonce),
            _ => None,
        };
        if let Some(owner) = late {
            give_back(&self.primary, owner);
        }
        answer
    }

    /// Before a step of an owner that the secondary granted: what it does counts anew. A window that could not be
    /// widened is no reason to lose a lease or an outcome, and it is tried long before it is needed.
    pub(super) async fn cover(&self, owner: &Owner) {
        if let Some(Home::Secondary { span }) = self.homes.of(&owner.nonce)
            && let Err(error) = self.widen(span.saturating_add(MARGIN / 2)).await
        {
            tracing::warn!(%error, key = %owner.key, "failover: other nodes may not ask for this key long enough");
        }
    }

    pub(super) async fn widen(&self, span: Duration) -> Result<()> {
        if self.window.covers(span) {
            return Ok(());
        }
        let read_at = Instant::now();
        let remaining = self.epoch.extend_to(span.saturating_add(MARGIN)).await?;
        self.window.update(remaining, read_at);
        Ok(())
    }

    fn remember(&self, answer: Option<&Result<Claim>>) {
        if let Some(Ok(Claim::Granted(lease))) = answer {
            self.homes.granted(lease.owner.nonce, Home::Primary);
        }
    }

    /// Whether the secondary has this key.
    async fn ask(&self, key: &KeyHash) -> Asked {
        match self.look_on_secondary(key).await {
            None => Asked::InVain,
            Some(None) => Asked::Free,
            Some(Some(seen)) if self.is_held(&seen).await => Asked::Held,
            Some(Some(_)) => Asked::Free,
        }
    }

    /// `None`: no answer.
    async fn look_on_secondary(&self, key: &KeyHash) -> Option<Option<Sighting>> {
        if self.secondary_circuit.is_open() {
            return None;
        }
        let (secondary, key) = (self.secondary.clone(), *key);
        let call = Box::pin(async move { secondary.get(&key).await });
        let answer = background::timeout_without_cancel(PATIENCE, call, drop).await;
        self.secondary_circuit.count(answer.as_ref().is_some_and(is_answer));
        answer?.ok()
    }

    /// A key that was given back there may have been taken on the primary since, and so may one whose owner
    /// was lost.
    async fn is_held(&self, Sighting { record, at }: &Sighting) -> bool {
        match record.state {
            State::Open => false,
            State::InProgress if record.is_leased(*at) => true,
            State::InProgress => {
                let elsewhere = self.primary.get(&record.key).await;
                !matches!(elsewhere, Ok(Some(seen)) if seen.record.state != State::Open)
            }
            State::Completed | State::Unknown | State::Dead | State::Erased => true,
        }
    }

    /// Reads the epoch. What is Unknown does not expire: while there is any, the window does not close.
    pub(super) async fn read_epoch(&self) {
        let (epoch, read_at) = (self.epoch.clone(), Instant::now());
        let closes = self.window.must_read_secondary();
        let call = Box::pin(async move {
            let Some(remaining) = epoch.remaining().await? else { return Ok(Duration::ZERO) };
            match closes && remaining < CLOSING && epoch.stats().await?.unknown > 0 {
                true => epoch.extend_to(CLOSING + MARGIN).await,
                false => Ok(remaining),
            }
        });
        if let Some(Ok(remaining)) = background::timeout_without_cancel(PATIENCE, call, drop).await
        {
            self.window.update(remaining, read_at);
        }
    }

    /// A key where it is at home. `None` where it is nowhere.
    pub(super) async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        if self.primary_circuit.is_open() {
            return self.secondary.get(key).await;
        }
        if self.window.must_read_secondary()
            && let Some(Some(seen)) = self.look_on_secondary(key).await
            && self.is_held(&seen).await
        {
            return Ok(Some(seen));
        }
        let answer = self.primary.get(key).await;
        self.primary_circuit.count(is_answer(&answer));
        if is_answer(&answer) { answer } else { self.secondary.get(key).await }
    }
}

/// How long what is claimed by these terms may count, from each step of its owner on.
pub(super) fn counted(terms: &Terms) -> Duration {
    let kept = terms.retention.max(terms.failure_retention).to_duration();
    kept.saturating_add(terms.lease.to_duration())
}

/// An answer of the primary that nobody waits for any more.
fn came_late<P: Store>(primary: &Arc<Observed<P>>, homes: &Homes, answer: &Result<Claim>) {
    if let Ok(Claim::Granted(lease)) = answer
        && homes.late(lease.owner)
    {
        give_back(primary, lease.owner);
    }
}

fn give_back<P: Store>(primary: &Arc<Observed<P>>, owner: Owner) {
    let (primary, request) = (primary.clone(), ReleaseRequest { owner, effect: Effect::None });
    background::handle().spawn(async move { drop(primary.release(&request).await) });
}
