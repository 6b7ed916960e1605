//! A store around the tested store: it writes every step to the history and stops at the kill points.

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
    journal::{Journal, JournaledCall},
    kill_points::KillPoints,
    names::KeyNames,
    outcome::digest,
    reply::{
        abandonment_reply, claim_reply, completion_reply, erasure_reply, forgetting_reply, merge,
        release_reply, renewal_reply, reply_of,
    },
};
use crate::{
    event::{Detail, EventKind, Hex, Op, ReplyKind},
    key::KeyId,
};

#[derive(Debug)]
pub(super) struct RecordingStore {
    store: AnyStore,
    names: KeyNames,
    journal: Arc<Journal>,
    kill_points: Arc<KillPoints>,
    owners: Mutex<HashMap<(KeyId, u64), Hex>>,
}

impl RecordingStore {
    pub(super) fn new(
        store: AnyStore,
        names: KeyNames,
        journal: Arc<Journal>,
        kill_points: Arc<KillPoints>,
    ) -> Self {
        Self { store, names, journal, kill_points, owners: Mutex::default() }
    }

    pub(super) const fn names(&self) -> &KeyNames {
        &self.names
    }

    /// The nonce of a run. Its handler knows the token only.
    pub(super) fn nonce(&self, key: KeyId, token: u64) -> Hex {
        self.owners.lock().get(&(key, token)).copied().unwrap_or(Hex(0))
    }

    async fn step<A>(
        &self,
        op: Op,
        request: Detail,
        step: impl Future<Output = Result<A>> + Send,
        describe: impl Fn(&A) -> Detail + Send,
    ) -> Result<A> {
        let call = self.begin(op, &request);
        let reply = step.await;
        self.end(call, &request, &reply, describe);
        reply
    }

    /// Writes the steps of a batch one by one.
    fn begin_all<R>(
        &self,
        op: Op,
        requests: &[R],
        describe: impl Fn(&R) -> Detail,
    ) -> Vec<(JournaledCall, Detail)> {
        let begin = |request| (self.begin(op, &request), request);
        requests.iter().map(|request| begin(describe(request))).collect()
    }

    fn end_all<A>(
        &self,
        begun: &[(JournaledCall, Detail)],
        replies: &[Result<A>],
        describe: impl Fn(usize, &A) -> Detail,
    ) {
        for (at, ((call, request), reply)) in begun.iter().zip(replies).enumerate() {
            self.end(*call, request, reply, |reply| describe(at, reply));
        }
    }

    fn begin(&self, op: Op, request: &Detail) -> JournaledCall {
        self.kill_points.reach(points_around(op).0, request.key);
        self.journal.invoke(op, request.clone())
    }

    /// The end of a call repeats the request, so that its line can be read alone.
    fn end<A>(
        &self,
        call: JournaledCall,
        request: &Detail,
        reply: &Result<A>,
        describe: impl Fn(&A) -> Detail,
    ) {
        self.kill_points.reach(points_around(call.op()).1, request.key);
        let (kind, detail) = match reply {
            Ok(reply) => (EventKind::Ok, describe(reply)),
            Err(error) => (kind_of(error), reply_of(ReplyKind::Error)),
        };
        self.journal.end(call, kind, merge(request, detail));
    }

    /// Remembers the nonce of a grant, for [`Self::nonce`].
    fn grant_or_reply(&self, request: &ClaimRequest, claim: &Claim) -> Detail {
        if let (Claim::Granted(lease), Some(key)) = (claim, self.names.key(&request.key)) {
            let nonce = Hex::of(request.nonce.as_bytes());
            self.owners.lock().insert((key, lease.owner.token), nonce);
        }
        claim_reply(claim)
    }

    fn describe_key(&self, key: &KeyHash) -> Detail {
        Detail { key: self.names.key(key), ..Detail::default() }
    }

    fn describe_claim(&self, request: &ClaimRequest) -> Detail {
        Detail {
            nonce: Some(Hex::of(request.nonce.as_bytes())),
            fingerprint: self.names.payload(&request.fingerprint),
            ..self.describe_key(&request.key)
        }
    }

    fn describe_owner(&self, owner: &Owner) -> Detail {
        Detail {
            nonce: Some(Hex::of(owner.nonce.as_bytes())),
            token: Some(owner.token),
            ..self.describe_key(&owner.key)
        }
    }

    fn describe_completion(&self, request: &CompleteRequest) -> Detail {
        Detail { digest: Some(digest(&request.outcome)), ..self.describe_owner(&request.owner) }
    }

    fn sighting_reply(&self, seen: Option<&Sighting>) -> Detail {
        seen.map_or_else(
            || reply_of(ReplyKind::Absent),
            |seen| super::dump::describe_record(&seen.record, &self.names),
        )
    }
}

pub(super) fn kind_of(error: &semel_core::Error) -> EventKind {
    if error.kind().is_indefinite() { EventKind::Info } else { EventKind::Fail }
}

/// The kill points before and after a step.
const fn points_around(op: Op) -> (&'static str, &'static str) {
    match op {
        Op::Claim => ("before-claim", "after-claim"),
        Op::Renew => ("before-renew", "after-renew"),
        Op::Complete => ("before-complete", "after-complete"),
        Op::Release => ("before-release", "after-release"),
        Op::Abandon => ("before-abandon", "after-abandon"),
        Op::Run | Op::Get | Op::Purge | Op::Forget | Op::Erase => ("", ""),
        Op::Ready | Op::Point | Op::Done | Op::Dump | Op::Exit | Op::Fault => ("", ""),
    }
}

#[async_trait]
impl Store for RecordingStore {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let reply = |claim: &Claim| self.grant_or_reply(request, claim);
        self.step(Op::Claim, self.describe_claim(request), self.store.claim(request), reply).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        let detail = self.describe_owner(&request.owner);
        self.step(Op::Renew, detail, self.store.renew(request), renewal_reply).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        let detail = self.describe_completion(request);
        self.step(Op::Complete, detail, self.store.complete(request), completion_reply).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        let detail = self.describe_owner(&request.owner);
        self.step(Op::Release, detail, self.store.release(request), release_reply).await
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        let detail = self.describe_owner(&request.owner);
        self.step(Op::Abandon, detail, self.store.abandon(request), abandonment_reply).await
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let begun = self.begin_all(Op::Claim, requests, |it| self.describe_claim(it));
        let replies = self.store.claim_many(requests).await;
        self.end_all(&begun, &replies, |at, it| self.grant_or_reply(&requests[at], it));
        replies
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        let begun = self.begin_all(Op::Renew, requests, |it| self.describe_owner(&it.owner));
        let replies = self.store.renew_many(requests).await;
        self.end_all(&begun, &replies, |_, it| renewal_reply(it));
        replies
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let begun = self.begin_all(Op::Complete, requests, |it| self.describe_completion(it));
        let replies = self.store.complete_many(requests).await;
        self.end_all(&begun, &replies, |_, it| completion_reply(it));
        replies
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        let begun = self.begin_all(Op::Release, requests, |it| self.describe_owner(&it.owner));
        let replies = self.store.release_many(requests).await;
        self.end_all(&begun, &replies, |_, it| release_reply(it));
        replies
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        let reply = |seen: &Option<Sighting>| self.sighting_reply(seen.as_ref());
        self.step(Op::Get, self.describe_key(key), self.store.get(key), reply).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        let reply = |_: &Purged| Detail::default();
        self.step(Op::Purge, Detail::default(), self.store.purge(limit), reply).await
    }

    // A chaos run resolves no keys, so the history needs no line for it.
    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.store.resolve(request).await
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.step(Op::Erase, self.describe_key(key), self.store.erase(key), erasure_reply).await
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.step(Op::Forget, self.describe_key(key), self.store.forget(key), forgetting_reply)
            .await
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
