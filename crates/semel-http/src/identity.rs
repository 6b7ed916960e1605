//! The key and the fingerprint under which a request is claimed.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use http::request::Parts;
use parking_lot::Mutex;
use semel_core::{
    Context, DetailedFingerprint, Fingerprint, Key, PartDigests, RawAnswer, RecordedDigests,
    RecordedRequest, RunError, Scope, Verdict,
};

use crate::{
    fingerprint::{changes_meaning, earlier_fingerprint, fingerprint, parts_of},
    state::PreparedRoute,
};

/// The key and fingerprint of a request.
pub(crate) struct RequestIdentity {
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) digests: PartDigests,
    earlier: Option<EarlierIdentity>,
}

/// The key and fingerprint that earlier versions of semel gave a request, if they differ from today's.
#[derive(Clone)]
struct EarlierIdentity {
    /// `None` if the key is the same.
    key: Option<Key>,
    fingerprint: Fingerprint,
    /// True if headers change the meaning of the request. Earlier versions ignored them.
    changes_meaning: bool,
}

/// A claim and the run that follows it.
pub(crate) type ClaimFuture = Pin<Box<dyn Future<Output = Result<RawAnswer, RunError>> + Send>>;

impl RequestIdentity {
    /// `earlier_scope` is the scope that earlier versions gave this request, if it is a different one.
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

    /// Claims the key and runs the request. If an earlier version has recorded this request, its key and
    /// fingerprint are claimed.
    pub(crate) fn claim<F, Fut>(&self, route: &Arc<PreparedRoute>, run: F) -> ClaimFuture
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let (key, fingerprint) = (self.key.clone(), self.detailed());
        // Boxed, because malloc is slow for allocations of a kilobyte or more, and the caller's future would
        // become that large.
        match self.earlier.clone() {
            None => {
                let route = route.clone();
                Box::pin(async move { route.engine.run_raw(key, fingerprint, run).await })
            }
            Some(earlier) => Box::pin(earlier.claim(route.clone(), key, fingerprint, run)),
        }
    }

    fn detailed(&self) -> DetailedFingerprint {
        DetailedFingerprint::new(self.fingerprint, self.digests)
    }
}

impl EarlierIdentity {
    async fn claim<F, Fut>(
        self,
        route: Arc<PreparedRoute>,
        key: Key,
        fingerprint: DetailedFingerprint,
        run: F,
    ) -> Result<RawAnswer, RunError>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        if let Some(earlier_key) = &self.key {
            // A claim of the new key would not find the record of the earlier key. If the store does not answer
            // whether that record exists, it is safe to claim the earlier key.
            let found = route.engine.recorded_request(earlier_key, &self.fingerprint).await;
            return match found {
                Ok(None) => route.engine.run_raw(key, fingerprint, run).await,
                Ok(Some(_)) | Err(_) => {
                    route.engine.run_raw(earlier_key.clone(), self.fingerprint, run).await
                }
            };
        }
        // A claim that is refused does not use the run, so that a second claim can.
        let run = Arc::new(Mutex::new(Some(run)));
        let taken = run.clone();
        let first = move |context| {
            let run = taken.lock().take().expect("a claim runs its work once");
            run(context)
        };
        let refused = match route.engine.run_raw(key.clone(), fingerprint, first).await {
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

    /// Whether an earlier version made this record for this request.
    fn made(&self, record: &RecordedRequest) -> bool {
        match record.parts {
            RecordedDigests::Known(_) | RecordedDigests::Outdated => false,
            RecordedDigests::Missing => record.same_fingerprint,
            // Without labels, only a fingerprint that no new record has shows that an earlier version wrote it.
            // If headers change the meaning of this request, its earlier fingerprint is also the new
            // fingerprint of the same request without these headers, and shows nothing.
            RecordedDigests::Redacted => record.same_fingerprint && !self.changes_meaning,
        }
    }
}
