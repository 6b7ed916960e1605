//! Custody: whoever asked for a key gives it back, even if its task is dropped.

use std::{sync::Arc, time::Duration};

use super::{Engine, settle::retry, wait_for_owner::pause};
use crate::background;
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, Effect, KeyHash, Nonce, Owner,
    ReleaseRequest, Result, State, Store, StoreDown, Token,
    sync::{
        Instant,
        atomic::{AtomicUsize, Ordering::Relaxed},
        time::timeout,
    },
};

/// Claims nobody heard of that are looked up at the same time; the rest are left to their leases.
const MAX_DISOWNING: usize = 1024;

/// Held from before the claim is sent until the settling has begun. Dropped before that, the key is
/// given back: looked up if nobody knows whether it was granted, released if nothing started,
/// abandoned if something did.
#[derive(Debug)]
pub(super) struct Custody {
    engine: Engine,
    key: KeyHash,
    nonce: Nonce,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Asking,
    Granted(Token),
    Started(Token),
    Over,
}

impl Custody {
    pub(super) const fn asking(engine: Engine, request: &ClaimRequest) -> Self {
        Self { engine, key: request.key, nonce: request.nonce, stage: Stage::Asking }
    }

    /// An answer came after everybody had left: a grant is given back. Not where work runs without one:
    /// then nobody may say that nothing happened.
    pub(super) fn of_nobody(engine: Engine, key: KeyHash, nonce: Nonce, answer: &Result<Claim>) {
        if engine.policy.store_down == StoreDown::Refuse {
            let mut custody = Self { engine, key, nonce, stage: Stage::Asking };
            custody.answered(answer);
        }
    }

    /// The store has answered.
    pub(super) fn answered(&mut self, answer: &Result<Claim>) {
        self.stage = match answer {
            Ok(Claim::Granted(lease)) => Stage::Granted(lease.owner.token),
            Err(error) if error.kind().is_indefinite() => Stage::Asking,
            Ok(_) | Err(_) => Stage::Over,
        };
    }

    /// The answer will go to [`Custody::of_nobody`]. What was granted before is still given back here.
    pub(super) const fn unanswered(&mut self) {
        if let Stage::Asking = self.stage {
            self.stage = Stage::Over;
        }
    }

    pub(super) const fn started(&mut self) {
        if let Stage::Granted(token) = self.stage {
            self.stage = Stage::Started(token);
        }
    }

    /// Somebody else looks after the key from here on.
    pub(super) const fn over(&mut self) {
        self.stage = Stage::Over;
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    const fn owner(&self, token: Token) -> Owner {
        Owner { key: self.key, nonce: self.nonce, token }
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        let (inner, policy) = (&self.engine.inner, &self.engine.policy);
        let (store, budget, backoff) = (inner.store.clone(), policy.record_budget, policy.backoff);
        match self.stage {
            Stage::Over => {}
            Stage::Asking => disown(&self.engine, self.key, self.nonce),
            Stage::Granted(token) => {
                let request = ReleaseRequest { owner: self.owner(token), effect: Effect::None };
                let release = async move { drop(retry(budget, || store.release(&request)).await) };
                inner.tasks.spawn_on(release, background::handle());
            }
            Stage::Started(token) => {
                let request = AbandonRequest { owner: self.owner(token), backoff };
                let stuck = inner.stuck.clone();
                let abandon = async move {
                    let (answer, _) = retry(budget, || store.abandon(&request)).await;
                    if let Ok(Abandonment::Unknown) = answer {
                        stuck.abandoned(&request.owner.key);
                    }
                };
                inner.tasks.spawn_on(abandon, background::handle());
            }
        }
    }
}

/// The claim may have been granted although nobody heard of it, or may yet be. Nothing ran: give the
/// key back. It is only looked up, since claiming it again could burn an attempt.
fn disown(engine: &Engine, key: KeyHash, nonce: Nonce) {
    let Some(place) = Disowning::enter(&engine.inner.disowning) else { return };
    let (store, policy) = (engine.inner.store.clone(), engine.policy.clone());
    background::handle().spawn(async move {
        let _place = place;
        let deadline = Instant::now() + policy.lease + policy.record_budget;
        if let Some(owner) = find_own(&*store, key, nonce, deadline).await {
            let request = ReleaseRequest { owner, effect: Effect::None };
            drop(retry(policy.record_budget, || store.release(&request)).await);
        }
    });
}

/// Looks until the claim is found, or cannot arrive any more: for as long as a lease, since a claim
/// that comes later than that is somebody's who retries it.
async fn find_own(
    store: &dyn Store,
    key: KeyHash,
    nonce: Nonce,
    deadline: Instant,
) -> Option<Owner> {
    const LOOK: Duration = Duration::from_secs(5);
    let mut tries = 0;
    while Instant::now() < deadline {
        if let Ok(Ok(Some(seen))) = timeout(LOOK, store.get(&key)).await {
            let record = seen.record;
            let ours = record.nonce == Some(nonce);
            match record.state {
                State::InProgress | State::Unknown if ours => {
                    return Some(Owner { key, nonce, token: record.token });
                }
                _ if ours => return None,
                State::Completed | State::Erased | State::Dead => return None,
                State::Open | State::InProgress | State::Unknown => {}
            }
        }
        pause(&mut tries).await;
    }
    None
}

/// A place among those that are looked up, given back however the look-up ends.
struct Disowning(Arc<AtomicUsize>);

impl Disowning {
    fn enter(count: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(count.clone());
        (count.fetch_add(1, Relaxed) < MAX_DISOWNING).then_some(place)
    }
}

impl Drop for Disowning {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
