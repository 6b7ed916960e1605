//! Stands between engine and store, writes down every step, and knows the points around it.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

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
    kill_points::Points,
    names::Names,
    outcome::digest,
    reply::{
        answered, merge, told_abandonment, told_claim, told_completion, told_erasure,
        told_forgetting, told_release, told_renewal,
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
        asked: Detail,
        step: impl Future<Output = Result<A>> + Send,
        told: impl Fn(&A) -> Detail + Send,
    ) -> Result<A> {
        let call = self.begin(op, &asked);
        let answer = step.await;
        self.end(call, &asked, &answer, told);
        answer
    }

    /// The steps of a batch are written down one by one.
    fn begin_all<R>(
        &self,
        op: Op,
        requests: &[R],
        asked: impl Fn(&R) -> Detail,
    ) -> Vec<(Call, Detail)> {
        let begin = |asked| (self.begin(op, &asked), asked);
        requests.iter().map(|request| begin(asked(request))).collect()
    }

    fn end_all<A>(
        &self,
        begun: &[(Call, Detail)],
        answers: &[Result<A>],
        told: impl Fn(usize, &A) -> Detail,
    ) {
        for (at, ((call, asked), answer)) in begun.iter().zip(answers).enumerate() {
            self.end(*call, asked, answer, |answer| told(at, answer));
        }
    }

    fn begin(&self, op: Op, asked: &Detail) -> Call {
        self.points.pass(around(op).0, asked.key);
        self.journal.invoke(op, asked.clone())
    }

    /// The end of a call repeats who called: a line can be read without its other half.
    fn end<A>(&self, call: Call, asked: &Detail, answer: &Result<A>, told: impl Fn(&A) -> Detail) {
        self.points.pass(around(call.op()).1, asked.key);
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

    fn asked_completion(&self, request: &CompleteRequest) -> Detail {
        Detail { digest: Some(digest(&request.outcome)), ..self.asked_owner(&request.owner) }
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

/// The points before and after a step.
const fn around(op: Op) -> (&'static str, &'static str) {
    match op {
        Op::Claim => ("before-claim", "after-claim"),
        Op::Renew => ("before-renew", "after-renew"),
        Op::Complete => ("before-complete", "after-complete"),
        Op::Release => ("before-release", "after-release"),
        Op::Abandon => ("before-abandon", "after-abandon"),
        Op::Run | Op::Get | Op::Purge | Op::Forget | Op::Erase => ("", ""),
        Op::Ready | Op::Point | Op::Done | Op::Dump | Op::Exit | Op::Blow => ("", ""),
    }
}

#[async_trait]
impl Store for Witness {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let told = |claim: &Claim| self.told_claim(request, claim);
        self.step(Op::Claim, self.asked_claim(request), self.store.claim(request), told).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        let asked = self.asked_owner(&request.owner);
        self.step(Op::Renew, asked, self.store.renew(request), told_renewal).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        let asked = self.asked_completion(request);
        self.step(Op::Complete, asked, self.store.complete(request), told_completion).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        let asked = self.asked_owner(&request.owner);
        self.step(Op::Release, asked, self.store.release(request), told_release).await
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        let asked = self.asked_owner(&request.owner);
        self.step(Op::Abandon, asked, self.store.abandon(request), told_abandonment).await
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let begun = self.begin_all(Op::Claim, requests, |it| self.asked_claim(it));
        let answers = self.store.claim_many(requests).await;
        self.end_all(&begun, &answers, |at, it| self.told_claim(&requests[at], it));
        answers
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        let begun = self.begin_all(Op::Renew, requests, |it| self.asked_owner(&it.owner));
        let answers = self.store.renew_many(requests).await;
        self.end_all(&begun, &answers, |_, it| told_renewal(it));
        answers
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let begun = self.begin_all(Op::Complete, requests, |it| self.asked_completion(it));
        let answers = self.store.complete_many(requests).await;
        self.end_all(&begun, &answers, |_, it| told_completion(it));
        answers
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        let begun = self.begin_all(Op::Release, requests, |it| self.asked_owner(&it.owner));
        let answers = self.store.release_many(requests).await;
        self.end_all(&begun, &answers, |_, it| told_release(it));
        answers
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        let told = |seen: &Option<Sighting>| self.told_sighting(seen.as_ref());
        self.step(Op::Get, self.asked(key), self.store.get(key), told).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        let told = |_: &Purged| Detail::default();
        self.step(Op::Purge, Detail::default(), self.store.purge(limit), told).await
    }

    // Nobody resolves anything in a storm.
    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.store.resolve(request).await
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.step(Op::Erase, self.asked(key), self.store.erase(key), told_erasure).await
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.step(Op::Forget, self.asked(key), self.store.forget(key), told_forgetting).await
    }

    async fn lead(&self, term: Duration) -> Result<bool> {
        self.store.lead(term).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        self.store.list(query).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.store.stats().await
    }
}
