//! From the caller to the claim, and from the claim to whoever answers.

use std::{future::Future, pin::Pin, sync::Arc, sync::atomic::Ordering::Relaxed, task::Poll};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{runtime::Handle, time::Instant};
use tracing::Instrument;

use super::{
    Answer, Context, Engine, Inner, RawAnswer, RunError, background,
    flight::{Boarding, Landing, Lead},
    wait::{Fate, pause},
};
use crate::{
    Claim, ClaimRequest, Error, ErrorKind, Fingerprint, Key, KeyHash, Nonce, Policy, Replay,
    Result, StoreDown, Verdict, WorkError,
    telemetry::{self, Tier},
};

pub(super) type Work =
    Box<dyn FnOnce(Context) -> Pin<Box<dyn Future<Output = Verdict> + Send>> + Send>;

/// A claim with its answer, and when it was first sent: the lease is counted from there.
pub(super) struct Asked {
    pub(super) request: ClaimRequest,
    pub(super) at: Instant,
    pub(super) answer: Result<Claim>,
}

impl Engine {
    /// Runs `work` once for this key, or answers with what it produced the first time.
    ///
    /// The value is recorded as JSON, and every answer is read back from that record, the first one
    /// too: what a retry will see is what the first caller saw.
    ///
    /// # Errors
    ///
    /// [`RunError`] says why there is no value and whether asking again helps.
    pub async fn run<T, E, F, Fut>(
        &self,
        key: Key,
        fingerprint: Fingerprint,
        work: F,
    ) -> Result<Answer<T>, RunError>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned,
        E: Into<WorkError>,
    {
        let classifier = self.inner.classifier.clone();
        let work = async move |context| match work(context).await {
            Ok(value) => Verdict::success(&value),
            Err(error) => Verdict::of_error(error.into(), &*classifier),
        };
        self.run_raw(key, fingerprint, work).await?.typed()
    }

    /// [`Engine::run`] for work that makes its own [`Outcome`](crate::Outcome) and verdict. A final
    /// failure is an answer here, not an error.
    ///
    /// # Errors
    ///
    /// [`RunError`], but never [`RunError::Failed`] for a failure that is recorded.
    pub async fn run_raw<F, Fut>(
        &self,
        key: Key,
        fingerprint: Fingerprint,
        work: F,
    ) -> Result<RawAnswer, RunError>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        self.check_open().map_err(RunError::Store)?;
        let request = self.claim_request(&key, &fingerprint);
        let span = process_span(&request.key, &self.policy);
        self.enter(request, work).instrument(span).await
    }

    async fn enter<F, Fut>(&self, request: ClaimRequest, work: F) -> Landing
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let key = request.key;
        match self.inner.flights.board((key, request.fingerprint)) {
            Boarding::Lead(lead) => self.lead(lead, request, work).await,
            Boarding::Follow(seat) => {
                let landing = seat.landing(self.policy.wait).await;
                if landing.is_ok() {
                    telemetry::replayed(&key, Tier::Wait, None);
                }
                landing
            }
            Boarding::Full => Err(RunError::Busy { retry_after: self.policy.lease }),
        }
    }

    /// Asks the store. An answer that comes at once and needs nothing more costs no task; otherwise
    /// a task takes over, which the caller cannot take down with it.
    async fn lead<F, Fut>(&self, lead: Lead, request: ClaimRequest, work: F) -> Landing
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let mut claim = Box::pin(ask(self.inner.clone(), self.policy.clone(), request));
        let asked = background::poll_once(&mut claim).await;
        if let Poll::Ready(asked) = &asked
            && let Some(landing) = self.conclude(asked)
        {
            lead.land(landing.clone());
            return landing;
        }
        let seat = lead.seat();
        let engine = self.clone();
        let work: Work = Box::new(move |context| Box::pin(async move { work(context).await }));
        let flight = async move {
            let asked = match asked {
                Poll::Ready(asked) => asked,
                Poll::Pending => claim.await,
            };
            engine.fly(lead, asked, work).await;
        };
        self.inner.tasks.spawn(flight.in_current_span());
        seat.landing(self.policy.wait).await
    }

    /// Brings a flight to its end: drives the work, or waits for another process that does.
    pub(super) async fn fly(self, mut lead: Lead, mut asked: Asked, work: Work) {
        loop {
            if let Some(landing) = self.conclude(&asked) {
                return lead.land(landing);
            }
            match asked.answer {
                Ok(Claim::Granted(lease)) => {
                    return self.drive(lead, lease, asked.request, asked.at, work).await;
                }
                Ok(Claim::Busy { remaining }) => lead.elsewhere(remaining),
                _ => return self.run_unprotected(lead, asked.request.key, work).await,
            }
            lead = match self.watch(lead, &asked.request).await {
                Fate::Deserted => return,
                Fate::Landed(lead, landing) => return lead.land(landing),
                Fate::Lapsed(lead) => lead,
            };
            let request = ClaimRequest { nonce: Nonce::random(), ..asked.request };
            asked = ask(self.inner.clone(), self.policy.clone(), request).await;
        }
    }

    /// What a claim's answer means when nothing is left to do.
    fn conclude(&self, asked: &Asked) -> Option<Landing> {
        let key = &asked.request.key;
        Some(match &asked.answer {
            Ok(Claim::Granted(_) | Claim::Busy { .. }) => return None,
            Ok(Claim::Replay(replay)) => Ok(replayed(key, replay, Tier::Store)),
            Ok(Claim::Mismatch) => {
                telemetry::mismatched(key);
                Err(RunError::Mismatch)
            }
            Ok(Claim::Unknown) => Err(RunError::Unknown),
            Ok(Claim::Dead) => Err(RunError::Dead),
            Ok(Claim::Gone) => Err(RunError::Gone),
            Ok(Claim::Released) => Err(RunError::Busy { retry_after: self.policy.backoff }),
            Err(error) if self.runs_without(error) => return None,
            Err(error) => Err(RunError::Store(error.clone())),
        })
    }

    fn runs_without(&self, error: &Error) -> bool {
        self.policy.store_down == StoreDown::RunUnprotected && error.kind().is_retryable()
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.inner.closed.load(Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the engine is shutting down"));
        }
        if Handle::try_current().is_err() {
            return Err(Error::invalid("no tokio runtime: call the engine from inside one"));
        }
        Ok(())
    }
}

/// Claims until the answer is definite, with one nonce: a lost reply is recognised (T2).
pub(super) async fn ask(inner: Arc<Inner>, policy: Arc<Policy>, request: ClaimRequest) -> Asked {
    let at = Instant::now();
    let mut tries = 0;
    loop {
        let answer = inner.store.claim(&request).await;
        let Err(error) = &answer else { return Asked { request, at, answer } };
        if !error.kind().is_indefinite() {
            return Asked { request, at, answer };
        }
        if at.elapsed() >= policy.wait {
            disown(&inner, &policy, &request);
            return Asked { request, at, answer };
        }
        pause(&mut tries).await;
    }
}

/// The claim may have been granted although nobody heard of it. Nothing ran: give the key back.
pub(super) fn disown(inner: &Arc<Inner>, policy: &Policy, request: &ClaimRequest) {
    let (this, request, budget) = (inner.clone(), request.clone(), policy.record_budget);
    let disown = async move {
        let started = Instant::now();
        let mut tries = 0;
        while started.elapsed() < budget {
            match this.store.get(&request.key).await {
                Ok(seen) => return this.release_if_ours(seen, &request).await,
                Err(_) => pause(&mut tries).await,
            }
        }
    };
    inner.tasks.spawn_on(disown, background::handle());
}

pub(super) fn replayed(key: &KeyHash, replay: &Replay, tier: Tier) -> RawAnswer {
    telemetry::replayed(key, tier, Some(replay.age));
    let (value, attempt) = (replay.outcome.clone(), replay.attempt);
    RawAnswer { value, replayed: true, stored: true, attempt }
}

pub(super) fn process_span(key: &KeyHash, policy: &Policy) -> tracing::Span {
    tracing::info_span!(
        "idempotency.process",
        idempotency.key = %key,
        idempotency.cache_hit = tracing::field::Empty,
        idempotency.ttl = policy.retention.as_secs(),
    )
}
