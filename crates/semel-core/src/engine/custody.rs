//! Custody: whoever asked for a key gives it back, even if its task is dropped.

use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;

use super::{Engine, background, settle::retry, wait::pause};
use crate::{
    AbandonRequest, Claim, ClaimRequest, Effect, KeyHash, Nonce, Owner, ReleaseRequest, Result,
    State, Token,
};

/// Claims nobody heard of that are looked up at once; the rest are left to their leases.
const MAX_DISOWNING: usize = 64;

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

    /// The store has answered.
    pub(super) fn answered(&mut self, answer: &Result<Claim>) {
        self.stage = match answer {
            Ok(Claim::Granted(lease)) => Stage::Granted(lease.owner.token),
            Err(error) if error.kind().is_indefinite() => Stage::Asking,
            Ok(_) | Err(_) => Stage::Over,
        };
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
                let abandon = async move { drop(retry(budget, || store.abandon(&request)).await) };
                inner.tasks.spawn_on(abandon, background::handle());
            }
        }
    }
}

/// The claim may have been granted although nobody heard of it. Nothing ran: give the key back.
/// It is only looked up, since claiming it again could burn an attempt.
fn disown(engine: &Engine, key: KeyHash, nonce: Nonce) {
    if engine.inner.disowning.fetch_add(1, Relaxed) >= MAX_DISOWNING {
        engine.inner.disowning.fetch_sub(1, Relaxed);
        return;
    }
    let (inner, budget) = (engine.inner.clone(), engine.policy.record_budget);
    background::handle().spawn(async move {
        let (started, mut tries) = (Instant::now(), 0);
        let seen = loop {
            match inner.store.get(&key).await {
                Ok(seen) => break seen,
                Err(_) if started.elapsed() >= budget => break None,
                Err(_) => pause(&mut tries).await,
            }
        };
        if let Some(seen) = seen
            && (seen.record.state, seen.record.nonce) == (State::InProgress, Some(nonce))
        {
            let owner = Owner { key, nonce, token: seen.record.token };
            let request = ReleaseRequest { owner, effect: Effect::None };
            drop(retry(budget, || inner.store.release(&request)).await);
        }
        inner.disowning.fetch_sub(1, Relaxed);
    });
}
