//! Stands between engine and store, writes down every step, and knows the points around it.

use std::{collections::HashMap, future::Future, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Owner, Purged, Record, Release, ReleaseRequest, RenewRequest,
    Renewal, Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
};

use super::{
    AnyStore,
    journal::{Call, Journal},
    names::Names,
    outcome::digest,
    points::Points,
    told::{
        answered, merge, told_abandonment, told_claim, told_completion, told_release, told_renewal,
    },
};
use crate::{
    event::{Answer, Detail, Hex, Kind, Op},
    key::KeyId,
};

#[derive(Debug)]
pub(super) struct Witness {
    store: AnyStore,
    names: Names,
    journal: Arc<Journal>,
    points: Arc<Points>,
    owners: Mutex<HashMap<(KeyId, u64), Hex>>,
}

impl Witness {
    pub(super) fn new(
        store: AnyStore,
        names: Names,
        journal: Arc<Journal>,
        points: Arc<Points>,
    ) -> Self {
        Self { store, names, journal, points, owners: Mutex::default() }
    }

    pub(super) const fn names(&self) -> &Names {
        &self.names
    }

    /// The nonce of a run, which its handler is not told.
    pub(super) fn nonce(&self, key: KeyId, token: u64) -> Hex {
        self.owners.lock().get(&(key, token)).copied().unwrap_or(Hex(0))
    }

    async fn step<A>(
        &self,
        op: Op,
        (before, after): (&str, &str),
        asked: Detail,
        step: impl Future<Output = Result<A>> + Send,
        told: impl Fn(&A) -> Detail + Send,
    ) -> Result<A> {
        let key = asked.key;
        self.points.pass(before, key);
        let call = self.journal.invoke(op, asked.clone());
        let answer = step.await;
        self.points.pass(after, key);
        self.end(call, &asked, &answer, told);
        answer
    }

    /// The end of a call repeats who called: a line can be read without its other half.
    fn end<A>(&self, call: Call, asked: &Detail, answer: &Result<A>, told: impl Fn(&A) -> Detail) {
        let (kind, told) = match answer {
            Ok(answer) => (Kind::Ok, told(answer)),
            Err(error) => (kind_of(error), answered(Answer::Error)),
        };
        self.journal.end(call, kind, merge(asked, told));
    }

    fn told_claim(&self, request: &ClaimRequest, claim: &Claim) -> Detail {
        if let (Claim::Granted(lease), Some(key)) = (claim, self.names.key(&request.key)) {
            let nonce = Hex::of(request.nonce.as_bytes());
            self.owners.lock().insert((key, lease.owner.token), nonce);
        }
        told_claim(claim)
    }

    fn asked(&self, key: &KeyHash) -> Detail {
        Detail { key: self.names.key(key), ..Detail::default() }
    }

    fn asked_claim(&self, request: &ClaimRequest) -> Detail {
        Detail {
            nonce: Some(Hex::of(request.nonce.as_bytes())),
            fingerprint: self.names.payload(&request.fingerprint),
            ..self.asked(&request.key)
        }
    }

    fn asked_owner(&self, owner: &Owner) -> Detail {
        Detail {
            nonce: Some(Hex::of(owner.nonce.as_bytes())),
            token: Some(owner.token),
            ..self.asked(&owner.key)
        }
    }

    fn told_sighting(&self, seen: Option<&Sighting>) -> Detail {
        seen.map_or_else(
            || answered(Answer::Absent),
            |seen| super::dump::describe_record(&seen.record, &self.names),
        )
    }
}

pub(super) fn kind_of(error: &semel_core::Error) -> Kind {
    if error.kind().is_indefinite() { Kind::Info } else { Kind::Fail }
}

/// The steps of a batch are written down one by one; the points are those of the single step.
macro_rules! many {
    ($self:ident, $requests:ident, $op:ident, $step:ident, $asked:expr, $told:expr) => {{
        let begun: Vec<_> = $requests
            .iter()
            .map(|request| {
                let asked = $asked(request);
                $self.points.pass(concat!("before-", stringify!($op)), asked.key);
                ($self.journal.invoke(op(stringify!($op)), asked.clone()), asked)
            })
            .collect();
        let answers = $self.store.$step($requests).await;
        for (((call, asked), answer), request) in begun.iter().zip(&answers).zip($requests) {
            $self.points.pass(concat!("after-", stringify!($op)), asked.key);
            $self.end(*call, asked, answer, |answer| $told(request, answer));
        }
        answers
    }};
}

fn op(name: &str) -> Op {
    match name {
        "claim" => Op::Claim,
        "renew" => Op::Renew,
        "complete" => Op::Complete,
        _ => Op::Release,
    }
}

#[async_trait]
impl Store for Witness {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let told = |claim: &Claim| self.told_claim(request, claim);
        let (points, asked) = (("before-claim", "after-claim"), self.asked_claim(request));
        self.step(Op::Claim, points, asked, self.store.claim(request), told).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        let (points, asked) = (("before-renew", "after-renew"), self.asked_owner(&request.owner));
        self.step(Op::Renew, points, asked, self.store.renew(request), told_renewal).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        let points = ("before-complete", "after-complete");
        let asked = self.asked_completion(request);
        self.step(Op::Complete, points, asked, self.store.complete(request), told_completion).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        let points = ("before-release", "after-release");
        let asked = self.asked_owner(&request.owner);
        self.step(Op::Release, points, asked, self.store.release(request), told_release).await
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        let points = ("before-abandon", "after-abandon");
        let asked = self.asked_owner(&request.owner);
        self.step(Op::Abandon, points, asked, self.store.abandon(request), told_abandonment).await
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let told = |request: &ClaimRequest, claim: &Claim| self.told_claim(request, claim);
        many!(self, requests, claim, claim_many, |it| self.asked_claim(it), told)
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        let asked = |request: &RenewRequest| self.asked_owner(&request.owner);
        many!(self, requests, renew, renew_many, asked, |_, it| told_renewal(it))
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let asked = |request: &CompleteRequest| self.asked_completion(request);
        many!(self, requests, complete, complete_many, asked, |_, it| told_completion(it))
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        let asked = |request: &ReleaseRequest| self.asked_owner(&request.owner);
        many!(self, requests, release, release_many, asked, |_, it| told_release(it))
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        let told = |seen: &Option<Sighting>| self.told_sighting(seen.as_ref());
        self.step(Op::Get, ("", ""), self.asked(key), self.store.get(key), told).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        let told = |_: &Purged| Detail::default();
        self.step(Op::Purge, ("", ""), Detail::default(), self.store.purge(limit), told).await
    }

    // Operators take no part in a storm.
    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.store.resolve(request).await
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.store.erase(key).await
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.store.forget(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        self.store.list(query).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.store.stats().await
    }
}

impl Witness {
    fn asked_completion(&self, request: &CompleteRequest) -> Detail {
        Detail { digest: Some(digest(&request.outcome)), ..self.asked_owner(&request.owner) }
    }
}
