//! A step on one key as a value, for stores that queue and batch steps.

use std::time::Duration;

use super::{
    Change, Step, abandon, claim, complete, erase, forget, live, purge, release, renew, resolve,
};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Decision,
    Erasure, Forgetting, KeyHash, Record, Release, ReleaseRequest, RenewRequest, Renewal,
    Resolution, ResolveRequest, Sighting, Span, State, Timestamp,
};

/// One step on one key.
#[derive(Clone, Debug)]
pub enum StoreRequest {
    /// T1–T5.
    Claim(ClaimRequest),
    /// T6.
    Renew(RenewRequest),
    /// T7.
    Complete(CompleteRequest),
    /// T8.
    Release(ReleaseRequest),
    /// T9.
    Abandon(AbandonRequest),
    /// T10.
    Resolve(ResolveRequest),
    /// T11.
    Erase(KeyHash),
    /// T12.
    Purge(KeyHash),
    /// T13.
    Forget(KeyHash),
    /// A read, which changes nothing.
    Get(KeyHash),
}

/// The reply to a [`StoreRequest`] of the same kind.
#[derive(Clone, Debug)]
pub enum StoreReply {
    /// T1–T5.
    Claim(Claim),
    /// T6.
    Renew(Renewal),
    /// T7.
    Complete(Completion),
    /// T8.
    Release(Release),
    /// T9.
    Abandon(Abandonment),
    /// T10.
    Resolve(Resolution),
    /// T11.
    Erase(Erasure),
    /// T12.
    Purge(PurgeReply),
    /// T13.
    Forget(Forgetting),
    /// The record. Boxed, as in [`PurgeReply`], since every reply is as large as the largest variant.
    Get(Option<Box<Sighting>>),
}

/// What cleanup did with one record.
#[derive(Clone, Debug)]
pub struct PurgeReply {
    /// True if its owner was lost, and it is Unknown now.
    pub held: bool,
    /// The record that is left.
    pub left: Option<Box<Record>>,
}

impl StoreRequest {
    /// The key that the step is about.
    #[must_use]
    pub const fn key(&self) -> &KeyHash {
        match self {
            Self::Claim(request) => &request.key,
            Self::Renew(request) => &request.owner.key,
            Self::Complete(request) => &request.owner.key,
            Self::Release(request) => &request.owner.key,
            Self::Abandon(request) => &request.owner.key,
            Self::Resolve(request) => &request.key,
            Self::Erase(key) | Self::Purge(key) | Self::Forget(key) | Self::Get(key) => key,
        }
    }

    /// Bytes of the outcome in the request.
    #[must_use]
    pub fn outcome_bytes(&self) -> usize {
        match self {
            Self::Complete(CompleteRequest { outcome, .. })
            | Self::Resolve(ResolveRequest { decision: Decision::Complete(outcome), .. }) => {
                outcome.size()
            }
            _ => 0,
        }
    }

    /// How long its caller waits for the reply, if that is less than the store's own timeout.
    #[must_use]
    pub const fn reply_within(&self) -> Option<Duration> {
        match self {
            Self::Renew(request) => request.reply_within,
            Self::Claim(_)
            | Self::Complete(_)
            | Self::Release(_)
            | Self::Abandon(_)
            | Self::Resolve(_)
            | Self::Erase(_)
            | Self::Purge(_)
            | Self::Forget(_)
            | Self::Get(_) => None,
        }
    }

    /// True for a step after which copies of the record in caches are out of date.
    #[must_use]
    pub const fn invalidates_copies(&self) -> bool {
        matches!(self, Self::Resolve(_) | Self::Erase(_) | Self::Forget(_))
    }

    /// Shortens spans that are too long for the servers of some stores.
    pub fn bound(&mut self) {
        match self {
            Self::Claim(request) => request.terms = request.terms.bounded(),
            Self::Abandon(request) => {
                request.backoff = Span::from(request.backoff).bounded().to_duration();
            }
            Self::Renew(_) | Self::Complete(_) | Self::Release(_) | Self::Resolve(_) => {}
            Self::Erase(_) | Self::Purge(_) | Self::Forget(_) | Self::Get(_) => {}
        }
    }

    /// Runs the step.
    #[must_use]
    pub fn step(&self, record: Option<&Record>, now: Timestamp) -> Step<StoreReply> {
        match self {
            Self::Claim(request) => claim(record, request, now).map_answer(StoreReply::Claim),
            Self::Renew(request) => renew(record, request, now).map_answer(StoreReply::Renew),
            Self::Complete(request) => {
                complete(record, request, now).map_answer(StoreReply::Complete)
            }
            Self::Release(request) => release(record, request, now).map_answer(StoreReply::Release),
            Self::Abandon(request) => abandon(record, request, now).map_answer(StoreReply::Abandon),
            Self::Resolve(request) => resolve(record, request, now).map_answer(StoreReply::Resolve),
            Self::Erase(_) => erase(record, now).map_answer(StoreReply::Erase),
            Self::Purge(_) => purge_step(record, now).map_answer(StoreReply::Purge),
            Self::Forget(_) => forget(record, now).map_answer(StoreReply::Forget),
            Self::Get(_) => {
                let record = live(record, now).cloned();
                let sighting = record.map(|record| Box::new(Sighting { record, at: now }));
                Step::keep(sighting).map_answer(StoreReply::Get)
            }
        }
    }
}

impl<A> Step<A> {
    fn map_answer<B>(self, map: impl FnOnce(A) -> B) -> Step<B> {
        Step { change: self.change, answer: map(self.answer) }
    }
}

fn purge_step(record: Option<&Record>, now: Timestamp) -> Step<PurgeReply> {
    let change = record.map_or(Change::Keep, |record| purge(record, now));
    let answer = match &change {
        Change::Keep => PurgeReply { held: false, left: record.cloned().map(Box::new) },
        Change::Put(changed) => PurgeReply {
            held: changed.state == State::Unknown,
            left: Some(Box::new(changed.clone())),
        },
        Change::Delete => PurgeReply { held: false, left: None },
    };
    Step { change, answer }
}
