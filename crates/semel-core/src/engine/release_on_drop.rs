//! Gives a claimed key back to the store if the task that claimed it is dropped.

use std::{sync::Arc, time::Duration};

use super::{Engine, settle::retry, wait_for_owner::pause};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, Effect, KeyHash, Nonce, Owner,
    ReleaseRequest, Result, State, Store, StoreDown, Token, background,
    sync::{
        Instant,
        atomic::{AtomicUsize, Ordering::Relaxed},
        time::timeout,
    },
};

/// Unacknowledged claims that are looked up at the same time. The keys of all others are free when their leases end.
const MAX_LOOKUPS: usize = 1024;

/// Held from before the claim is sent until the attempt is settled. Dropped before that, it gives the key back: it
/// looks up whether an unacknowledged claim was granted, releases the key if no work started, and abandons it if some
/// did.
#[derive(Debug)]
pub(super) struct ReleaseOnDrop {
    engine: Engine,
    key: KeyHash,
    nonce: Nonce,
    stage: ClaimStage,
}

#[derive(Clone, Copy, Debug)]
enum ClaimStage {
    /// The claim was sent, and no definite reply has come.
    Unacknowledged,
    Granted(Token),
    WorkStarted(Token),
    /// Nothing is to be given back.
    Disarmed,
}

impl ReleaseOnDrop {
    pub(super) const fn new(engine: Engine, request: &ClaimRequest) -> Self {
        let (key, nonce) = (request.key, request.nonce);
        Self { engine, key, nonce, stage: ClaimStage::Unacknowledged }
    }

    /// Gives back a grant that came after its caller had given up. Not where work runs without protection: there the
    /// work may have run, so the key must not be released as untouched.
    pub(super) fn late_reply(engine: Engine, key: KeyHash, nonce: Nonce, reply: &Result<Claim>) {
        if engine.policy.store_down == StoreDown::Refuse {
            let mut unused = Self { engine, key, nonce, stage: ClaimStage::Unacknowledged };
            unused.claim_replied(reply);
        }
    }

    pub(super) fn claim_replied(&mut self, reply: &Result<Claim>) {
        self.stage = match reply {
            Ok(Claim::Granted(lease)) => ClaimStage::Granted(lease.owner.token),
            Err(error) if error.kind().is_indefinite() => ClaimStage::Unacknowledged,
            Ok(_) | Err(_) => ClaimStage::Disarmed,
        };
    }

    /// A reply that still comes goes to [`ReleaseOnDrop::late_reply`]. What was granted before is still given back
    /// here.
    pub(super) const fn claim_timed_out(&mut self) {
        if let ClaimStage::Unacknowledged = self.stage {
            self.stage = ClaimStage::Disarmed;
        }
    }

    pub(super) const fn work_started(&mut self) {
        if let ClaimStage::Granted(token) = self.stage {
            self.stage = ClaimStage::WorkStarted(token);
        }
    }

    /// From here on the caller of this function settles the key.
    pub(super) const fn disarm(&mut self) {
        self.stage = ClaimStage::Disarmed;
    }

    pub(super) const fn is_disarmed(&self) -> bool {
        matches!(self.stage, ClaimStage::Disarmed)
    }

    const fn owner(&self, token: Token) -> Owner {
        Owner { key: self.key, nonce: self.nonce, token }
    }
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        let (inner, policy) = (&self.engine.inner, &self.engine.policy);
        let (store, budget, backoff) = (inner.store.clone(), policy.record_budget, policy.backoff);
        match self.stage {
            ClaimStage::Disarmed => {}
            ClaimStage::Unacknowledged => look_up_and_release(&self.engine, self.key, self.nonce),
            ClaimStage::Granted(token) => {
                let request = ReleaseRequest { owner: self.owner(token), effect: Effect::None };
                let release = async move { drop(retry(budget, || store.release(&request)).await) };
                inner.tasks.spawn_on(release, background::handle());
            }
            ClaimStage::WorkStarted(token) => {
                let request = AbandonRequest { owner: self.owner(token), backoff };
                let stuck = inner.stuck.clone();
                let abandon = async move {
                    let (reply, _) = retry(budget, || store.abandon(&request)).await;
                    if let Ok(Abandonment::Unknown) = reply {
                        stuck.abandoned(&request.owner.key);
                    }
                };
                inner.tasks.spawn_on(abandon, background::handle());
            }
        }
    }
}

/// The claim may have been granted although its reply was lost, or may still arrive at the store. No work ran, so the
/// key is released. The record is only read, since another claim could use up an attempt.
fn look_up_and_release(engine: &Engine, key: KeyHash, nonce: Nonce) {
    let Some(permit) = LookupPermit::acquire(&engine.inner.claim_lookups) else { return };
    let (store, policy) = (engine.inner.store.clone(), engine.policy.clone());
    background::handle().spawn(async move {
        let _permit = permit;
        let deadline = Instant::now() + policy.lease + policy.record_budget;
        if let Some(owner) = find_granted(&*store, key, nonce, deadline).await {
            let request = ReleaseRequest { owner, effect: Effect::None };
            drop(retry(policy.record_budget, || store.release(&request)).await);
        }
    });
}

/// Reads the record until it has the claim, or until the claim cannot arrive any more. That takes as long as a lease: a
/// claim with this nonce that arrives later was repeated by a caller, which waits for its reply.
async fn find_granted(
    store: &dyn Store,
    key: KeyHash,
    nonce: Nonce,
    deadline: Instant,
) -> Option<Owner> {
    const READ_TIMEOUT: Duration = Duration::from_secs(5);
    let mut tries = 0;
    while Instant::now() < deadline {
        if let Ok(Ok(Some(sighting))) = timeout(READ_TIMEOUT, store.get(&key)).await {
            let record = sighting.record;
            let is_ours = record.nonce == Some(nonce);
            match record.state {
                State::InProgress | State::Unknown if is_ours => {
                    return Some(Owner { key, nonce, token: record.token });
                }
                _ if is_ours => return None,
                State::Completed | State::Erased | State::Dead => return None,
                State::Open | State::InProgress | State::Unknown => {}
            }
        }
        pause(&mut tries).await;
    }
    None
}

/// One of the lookups under way.
struct LookupPermit(Arc<AtomicUsize>);

impl LookupPermit {
    fn acquire(lookups: &Arc<AtomicUsize>) -> Option<Self> {
        let permit = Self(lookups.clone());
        (lookups.fetch_add(1, Relaxed) < MAX_LOOKUPS).then_some(permit)
    }
}

impl Drop for LookupPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
