//! The key and the fingerprint under which a request is claimed, and which part of it differs from the
//! request that used the key before.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use http::request::Parts;
use parking_lot::Mutex;
use semel_core::{
    Context, DetailedFingerprint, Fingerprint, Key, PartDigests, RawAnswer, RecordedDigests,
    RecordedRequest, RunError, Scope, Verdict,
};

use crate::{
    classify::PreparedRoute,
    fingerprint::{PART_NAMES, changes_meaning, earlier_fingerprint, fingerprint, parts_of},
    problem::Problem,
};

/// What a request is claimed under.
pub(crate) struct RequestIdentity {
    key: Key,
    fingerprint: Fingerprint,
    digests: PartDigests,
    earlier: Option<EarlierIdentity>,
}

/// What earlier builds claimed a request under, where it is something else.
#[derive(Clone)]
struct EarlierIdentity {
    /// `None`: the same key.
    key: Option<Key>,
    fingerprint: Fingerprint,
    /// They did not see what its headers change.
    changes_meaning: bool,
}

/// A claim with its run, on its way.
pub(crate) type ClaimFuture = Pin<Box<dyn Future<Output = Result<RawAnswer, RunError>> + Send>>;

impl RequestIdentity {
    /// `earlier_scope` is the one that earlier builds gave this request, if it is another.
    pub(crate) fn new(
        route: &PreparedRoute,
        key: Key,
        earlier_scope: Option<&Scope>,
        parts: &Parts,
        body: &Bytes,
    ) -> Self {
        let named = parts_of(parts, &route.policy);
        let earlier =
            earlier_fingerprint(parts, body, &route.policy).map(|fingerprint| EarlierIdentity {
                key: earlier_scope.and_then(|scope| key.in_scope(scope).ok()),
                fingerprint,
                changes_meaning: changes_meaning(parts),
            });
        Self {
            key,
            fingerprint: fingerprint(parts, body, &route.policy),
            digests: route.engine.part_digests(&named.each_ref().map(|part| &**part)),
            earlier,
        }
    }

    /// Claims the key and runs the request, under the identity that an earlier build gave it if there is a
    /// record of it.
    pub(crate) fn claim<F, Fut>(&self, route: &Arc<PreparedRoute>, run: F) -> ClaimFuture
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let (key, asked) = (self.key.clone(), self.detailed());
        // Boxed: an allocation of a kilobyte or more takes malloc's slow way, and this future would be one.
        match self.earlier.clone() {
            None => {
                let route = route.clone();
                Box::pin(async move { route.engine.run_raw(key, asked, run).await })
            }
            Some(earlier) => Box::pin(earlier.claim(route.clone(), key, asked, run)),
        }
    }

    fn detailed(&self) -> DetailedFingerprint {
        DetailedFingerprint::new(self.fingerprint, self.digests)
    }

    /// The answer to a request whose key stands for another one. It names the parts that differ, as far
    /// as the record knows them, and never a value.
    pub(crate) async fn mismatch(&self, route: &PreparedRoute) -> Problem {
        let problem = Problem::mismatch(&route.policy);
        let found = route.engine.recorded_request(&self.key, &self.fingerprint).await;
        let Ok(Some(RecordedRequest {
            same_fingerprint: false,
            parts: RecordedDigests::Known(recorded),
        })) = found
        else {
            // Also if the key has passed to this very request in the meantime.
            return problem;
        };
        let names = recorded.differing(&self.digests).filter_map(|place| PART_NAMES.get(place));
        let mut names: Vec<&'static str> = names.copied().collect();
        if names.is_empty() {
            names.push("body");
        }
        problem.differs(names)
    }
}

impl EarlierIdentity {
    async fn claim<F, Fut>(
        self,
        route: Arc<PreparedRoute>,
        key: Key,
        asked: DetailedFingerprint,
        run: F,
    ) -> Result<RawAnswer, RunError>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        if let Some(earlier_key) = &self.key {
            // A claim of the new key would not meet the record of the earlier one. If the store does not
            // say whether there is one, the earlier key is the safe one to claim.
            let found = route.engine.recorded_request(earlier_key, &self.fingerprint).await;
            return match found {
                Ok(None) => route.engine.run_raw(key, asked, run).await,
                Ok(Some(_)) | Err(_) => {
                    route.engine.run_raw(earlier_key.clone(), self.fingerprint, run).await
                }
            };
        }
        // The run comes back from a claim that was refused, for a second one.
        let run = Arc::new(Mutex::new(Some(run)));
        let taken = run.clone();
        let first = move |context| {
            let run = taken.lock().take().expect("a claim runs its work once");
            run(context)
        };
        let refused = match route.engine.run_raw(key.clone(), asked, first).await {
            Err(RunError::Mismatch) => Err(RunError::Mismatch),
            answer => return answer,
        };
        let found = route.engine.recorded_request(&key, &self.fingerprint).await;
        let run = run.lock().take();
        match (found, run) {
            (Ok(Some(record)), Some(run)) if self.made(&record) => {
                route.engine.run_raw(key, self.fingerprint, run).await
            }
            (Err(error), _) => Err(RunError::Store(error)),
            (Ok(_), _) => refused,
        }
    }

    /// Whether an earlier build made this record for this request.
    fn made(&self, record: &RecordedRequest) -> bool {
        match record.parts {
            RecordedDigests::Known(_) | RecordedDigests::Outdated => false,
            RecordedDigests::Missing => record.same_fingerprint,
            // Without labels nothing tells the builds apart but a fingerprint that no new record has. That of
            // a request whose headers change its meaning is also that of a new one without these headers.
            RecordedDigests::Redacted => record.same_fingerprint && !self.changes_meaning,
        }
    }
}
