//! From the caller to the claim, and from the claim to whoever answers.

use std::{
    future::{Future, poll_fn},
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    slice,
    task::{self, Poll},
    thread,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use tracing::Instrument;

use super::{
    Answer, Context, DetailedFingerprint, Engine, RawAnswer, RunError,
    attempt::Leg,
    release_on_drop::Custody,
    settle::MIN_PATIENCE,
    singleflight::{Boarding, Landing, Lead, Place},
    wait_for_owner::{Fate, pause_within},
};
use crate::{
    Claim, ClaimRequest, Error, ErrorKind, Fingerprint, Key, KeyHash, Lease, Nonce, Policy, Replay,
    Result, StoreDown, Verdict, WorkError, background,
    circuit_breaker::is_answer,
    sync::{Instant, atomic::Ordering::SeqCst, bug, runtime::Handle},
    telemetry::{self, Tier},
};

pub(super) type Work =
    Box<dyn FnOnce(Context) -> Pin<Box<dyn Future<Output = Verdict> + Send>> + Send>;

/// How long a store that is known to be down may take to answer. It is asked all the same: a cache or a front may have
/// the outcome.
const DOWN_PATIENCE: Duration = Duration::from_millis(250);
/// The least that the last try of a claim may take.
const LAST_TRY: Duration = Duration::from_millis(100);

/// A claim with its answer. Its times are real ones, also where a test has paused tokio's clock.
pub(super) struct Asked {
    pub(super) request: Box<ClaimRequest>,
    pub(super) answer: Result<Claim>,
    /// When it was first sent: the run is counted from there.
    pub(super) began: Instant,
    /// When the call that was answered was sent: the lease is counted from there.
    pub(super) sent: Instant,
    pub(super) custody: Custody,
}

/// What is left to do after a claim.
enum Next {
    Land(Landing),
    Drive(Lease),
    Wait(Duration),
    RunUnprotected,
}

impl Engine {
    /// Runs `work` once for this key, or answers with what it produced the first time.
    ///
    /// The value is recorded as JSON, and every answer is read back from that JSON, the first one too:
    /// what a retry will see is what the first caller saw. Only a value over the size limit is shown
    /// to the first caller and to nobody after.
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
    /// [`RunError`], but never [`RunError::Failed`].
    pub async fn run_raw<F, Fut>(
        &self,
        key: Key,
        fingerprint: impl Into<DetailedFingerprint>,
        work: F,
    ) -> Result<RawAnswer, RunError>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        self.check_open().map_err(RunError::Store)?;
        let request = Box::new(self.claim_request(&key, &fingerprint.into()));
        drop(key);
        let span = process_span(&request.key, &self.policy);
        self.enter(request, work).instrument(span).await
    }

    async fn enter<F, Fut>(&self, request: Box<ClaimRequest>, work: F) -> Landing
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let key = request.key;
        match self.inner.flights.board((key, request.fingerprint)) {
            Boarding::Lead(lead) => self.lead(lead, request, work).await,
            Boarding::Follow(seat) => {
                let landing = Box::pin(seat.landing(self.policy.wait)).await;
                bug!(WaiterStampede => {
                    if let Err(RunError::Retry(_)) = landing {
                        return Box::pin(self.enter(request, work)).await;
                    }
                });
                if landing.is_ok() {
                    telemetry::replayed(&key, Tier::Wait, None);
                }
                landing
            }
            Boarding::Full => Err(crowded()),
        }
    }

    /// Asks the store. Everything is polled once right here, and what ends at that costs no task: a
    /// replay, or work that does not wait over a store that does not. Otherwise a task takes over, which
    /// the caller cannot take down with it.
    async fn lead<F, Fut>(&self, lead: Lead, request: Box<ClaimRequest>, work: F) -> Landing
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let mut claim = Box::pin(self.clone().ask(request));
        let Ok(asked) = AssertUnwindSafe(background::poll_once(&mut claim)).catch_unwind().await
        else {
            let error = Error::new(ErrorKind::Unavailable, "the store panicked");
            return lead.land(Err(RunError::Store(error)));
        };
        let work = move || -> Work { Box::new(move |context| Box::pin(work(context))) };
        let (place, engine) = (lead.place(), self.clone());
        let mut flight: BoxFuture<'static, Option<Landing>> = match asked {
            Poll::Pending => {
                let work = work();
                let flight = async move { engine.fly(lead, claim.await, work).await };
                return self.go_on(place, Box::pin(flight)).await;
            }
            Poll::Ready(asked) => match self.next(&asked) {
                Next::Land(landing) => return lead.land(landing),
                Next::Drive(lease) => {
                    Box::pin(engine.drive(Box::new(Leg { lead, lease, asked }), work()))
                }
                // The leader sits down first: a flight without anybody on it is given up.
                Next::Wait(_) => {
                    return self.go_on(place, Box::pin(engine.fly(lead, asked, work()))).await;
                }
                Next::RunUnprotected => Box::pin(engine.fly(lead, asked, work())),
            },
        };
        // A shutdown waits for what is polled here too.
        let polled_here = self.inner.tasks.token();
        bug!(FlownByTheCaller => {
            drop(polled_here);
            return flight.await.unwrap_or(Err(RunError::Interrupted));
        });
        match poll_fn(|cx| Poll::Ready(poll_caught(flight.as_mut(), cx))).await {
            Ok(Poll::Ready(landing)) => return landing.unwrap_or(Err(RunError::Interrupted)),
            Ok(Poll::Pending) => {}
            // As in a task of its own: whoever waits is told when the flight is dropped.
            Err(_panic) => return Err(RunError::Interrupted),
        }
        // Nothing can land between the poll and this: nobody else polls it.
        let landing = self.go_on(place, flight);
        drop(polled_here);
        landing.await
    }

    /// The flight goes on in a task of its own, and its leader sits down.
    fn go_on(
        &self,
        place: Place,
        flight: BoxFuture<'static, Option<Landing>>,
    ) -> BoxFuture<'static, Landing> {
        let seat = place.seat();
        self.inner.tasks.spawn(flight.in_current_span());
        Box::pin(seat.landing(self.policy.wait))
    }

    /// Brings a flight to its end: drives the work, or waits for another process that does. Answers
    /// what everybody was told; `None` when nobody was there any more.
    pub(super) async fn fly(self, mut lead: Lead, mut asked: Asked, work: Work) -> Option<Landing> {
        let mut was_slow = false;
        loop {
            match self.next(&asked) {
                Next::Land(landing) => return Some(lead.land(landing)),
                // The lease may be over before the work has begun: the same nonce re-arms it (T2).
                Next::Drive(lease) if asked.sent.elapsed() >= lease.length * 4 / 5 => {
                    // Not at once: it may be this process that stood still.
                    if was_slow && asked.began.elapsed() >= self.policy.wait.max(MIN_PATIENCE) {
                        return Some(lead.land(Err(RunError::Store(too_slow(lease.length)))));
                    }
                    was_slow = true;
                    let patience = self.patience(Instant::now());
                    Box::pin(self.ask_once_more(&mut asked, patience)).await;
                    continue;
                }
                Next::Drive(lease) => {
                    let leg = Box::new(Leg { lead, lease, asked });
                    return Box::pin(self.drive(leg, work)).await;
                }
                Next::RunUnprotected => {
                    // The work will run: a key that was granted must not be given back as untouched.
                    asked.custody.over();
                    let key = asked.request.key;
                    return Some(Box::pin(self.run_unprotected(lead, key, work)).await);
                }
                Next::Wait(remaining) => lead.elsewhere(remaining),
            }
            lead = match Box::pin(self.watch(lead, &asked.request)).await {
                Fate::Deserted => return None,
                Fate::Landed(lead, landing) => return Some(lead.land(landing)),
                Fate::Lapsed(lead) => lead,
            };
            if let Err(error) = self.check_open() {
                return Some(lead.land(Err(RunError::Store(error))));
            }
            let request = Box::new(ClaimRequest { nonce: Nonce::random(), ..*asked.request });
            asked = Box::pin(self.clone().ask(request)).await;
        }
    }

    fn next(&self, asked: &Asked) -> Next {
        let key = &asked.request.key;
        if let Ok(answer) = &asked.answer {
            self.inner.stuck.claim_answered(key, answer);
        }
        Next::Land(match &asked.answer {
            Ok(Claim::Granted(lease)) => return Next::Drive(*lease),
            Ok(Claim::Busy { remaining }) => return Next::Wait(*remaining),
            Ok(Claim::Replay(replay)) => replayed(key, replay, tier_of(replay)),
            Ok(Claim::Mismatch) => {
                telemetry::mismatched(key);
                Err(RunError::Mismatch)
            }
            Ok(Claim::Unknown) => Err(RunError::Unknown),
            Ok(Claim::Dead) => Err(RunError::Dead),
            Ok(Claim::Gone) => Err(RunError::Gone),
            Ok(Claim::Released) => Err(RunError::Busy { retry_after: self.policy.backoff }),
            Err(error) if self.runs_without(error) => return Next::RunUnprotected,
            Err(error) => Err(RunError::Store(error.clone())),
        })
    }

    fn runs_without(&self, error: &Error) -> bool {
        self.policy.store_down == StoreDown::RunUnprotected && error.kind().is_retryable()
    }

    /// Claims until the answer is definite, with one nonce: a lost reply is recognised (T2).
    async fn ask(self, request: Box<ClaimRequest>) -> Asked {
        let mut custody = Custody::asking(self.clone(), &request);
        let began = Instant::now();
        let answer = self.send(&request, self.patience(began), &mut custody).await;
        let asked = Asked { request, answer, began, sent: began, custody };
        match &asked.answer {
            Ok(_) => asked,
            Err(_) => Box::pin(self.ask_again(asked)).await,
        }
    }

    /// Repeats a claim whose answer is not definite, until [`Policy::store_timeout`] is over or the store is known to be
    /// down.
    pub(super) async fn ask_again(self, mut asked: Asked) -> Asked {
        let mut tries = 0;
        loop {
            let Err(error) = &asked.answer else { return asked };
            if !error.kind().is_indefinite() || asked.custody.is_over() {
                return asked;
            }
            let left = self.policy.store_timeout.saturating_sub(asked.began.elapsed());
            if left.is_zero() || self.is_store_down() {
                return asked;
            }
            pause_within(&mut tries, left).await;
            let patience = self.patience(asked.began);
            self.ask_once_more(&mut asked, patience).await;
        }
    }

    async fn ask_once_more(&self, asked: &mut Asked, patience: Duration) {
        asked.sent = Instant::now();
        asked.answer = self.send(&asked.request, patience, &mut asked.custody).await;
    }

    /// How long a claim that began then waits for an answer.
    pub(super) fn patience(&self, began: Instant) -> Duration {
        let (policy, elapsed) = (&self.policy, began.elapsed());
        if !self.inner.info.shared {
            return policy.wait.max(policy.store_timeout).saturating_sub(elapsed).max(MIN_PATIENCE);
        }
        let left = policy.store_timeout.saturating_sub(elapsed);
        let left = left.max(LAST_TRY.min(policy.store_timeout));
        if self.is_store_down() { left.min(DOWN_PATIENCE) } else { left }
    }

    fn is_store_down(&self) -> bool {
        self.inner.circuit.as_ref().is_some_and(|circuit| circuit.is_open())
    }

    /// Counts one call for claims, with its answers; with none if it was not answered. What a cache in this process
    /// answered says nothing about the store.
    pub(super) fn count(&self, answers: &[Result<Claim>]) {
        let Some(circuit) = &self.inner.circuit else { return };
        let is_cached = |answer: &_| matches!(answer, Ok(Claim::Replay(replay)) if replay.cached);
        if !answers.is_empty() && answers.iter().all(is_cached) {
            return;
        }
        let answered = answers.iter().any(|answer| is_answer(answer) && !is_cached(answer));
        // Routes share the circuit: a route with a short timeout does not open it for the others.
        circuit.count_within(answered, self.policy.store_timeout.max(Policy::STORE_TIMEOUT));
    }

    /// One call. If its answer does not come in time, the claim is given up: an answer that comes later is given back,
    /// so that "nothing ran" is true for the caller that gets this answer.
    async fn send(
        &self,
        request: &ClaimRequest,
        patience: Duration,
        custody: &mut Custody,
    ) -> Result<Claim> {
        let late = self.give_back_late(request);
        let (store, request) = (self.inner.store.clone(), request.clone());
        // Through the pointer: `Arc` is a store itself, and would box the call once more.
        let call = Box::pin(async move { (*store).claim(&request).await });
        match background::within(patience, call, late).await {
            Some(answer) => {
                self.count(slice::from_ref(&answer));
                custody.answered(&answer);
                answer
            }
            None => {
                self.count(&[]);
                custody.unanswered();
                Err(unanswered())
            }
        }
    }

    /// What to do with an answer nobody waits for any more.
    pub(super) fn give_back_late(
        &self,
        request: &ClaimRequest,
    ) -> impl FnOnce(Result<Claim>) + Send + 'static {
        let (engine, key, nonce) = (self.clone(), request.key, request.nonce);
        // A custody made now would give the key back when this closure is dropped unused.
        move |answer| {
            // A store that answers late is slow, and not down.
            if is_answer(&answer) {
                engine.count(slice::from_ref(&answer));
            }
            Custody::of_nobody(engine, key, nonce, &answer);
        }
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.inner.closed.load(SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the engine is shutting down"));
        }
        if Handle::try_current().is_err() {
            return Err(Error::invalid("no tokio runtime: call the engine from inside one"));
        }
        Ok(())
    }
}

/// Too many wait. The answer may be there any moment: it is the crowd that has to go.
pub(super) const fn crowded() -> RunError {
    RunError::Busy { retry_after: Duration::from_secs(1) }
}

/// A store that panics must not take its caller down.
fn poll_caught<F: Future + ?Sized>(
    flight: Pin<&mut F>,
    cx: &mut task::Context<'_>,
) -> thread::Result<Poll<F::Output>> {
    panic::catch_unwind(AssertUnwindSafe(|| flight.poll(cx)))
}

/// Answers with what is recorded. Sealed bytes are nobody's answer, and no reason to run again.
pub(super) fn replayed(key: &KeyHash, replay: &Replay, tier: Tier) -> Landing {
    if replay.outcome.is_sealed() {
        let what = format!(
            "record {key}: its outcome is sealed, and this process has no seal keys; give it those \
             that the others have"
        );
        return Err(RunError::Store(Error::new(ErrorKind::Corrupt, what)));
    }
    telemetry::replayed(key, tier, Some(replay.age));
    let Replay { outcome: value, attempt, .. } = replay.clone();
    Ok(RawAnswer { value, replayed: true, stored: true, attempt })
}

pub(super) const fn tier_of(replay: &Replay) -> Tier {
    if replay.cached { Tier::Cache } else { Tier::Store }
}

pub(super) fn process_span(key: &KeyHash, policy: &Policy) -> tracing::Span {
    tracing::info_span!(
        "idempotency.process",
        idempotency.key = %key,
        idempotency.cache_hit = tracing::field::Empty,
        idempotency.ttl = policy.retention.as_secs(),
    )
}

fn too_slow(lease: Duration) -> Error {
    let subject =
        format!("the store takes too long to claim a key for a lease of {lease:?}; make it longer");
    Error::new(ErrorKind::Unavailable, subject)
}

pub(super) fn unanswered() -> Error {
    Error::new(ErrorKind::Unavailable, "the store did not answer in time (store_timeout)")
}
