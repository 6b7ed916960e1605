//! Runs a sequence on the store and compares every reply and record with the model.
//!
//! Store time is read from the store itself, before and after each step. On a manual clock that is one instant. On a
//! real clock the step happened in between, and the model takes the instant that explains the reply.

use std::{collections::HashMap, time::Duration};

use semel_core::{KeyHash, ListQuery, Record, Store, Timestamp};

use super::{
    CheckResult, Subject,
    approx_eq::{approx_eq, differences},
    identifiers::Identifiers,
    model::{Model, StepReply, StepRequest, StepTime, purged},
    send::{expect_reply, send, send_batch},
    transition::{IndexedStep, Transition},
};
use crate::{
    operation::{LONG, TestOperation},
    promises::purge::drain,
};

/// A store under test, and a record to read its clock.
#[derive(Debug)]
pub(super) struct StoreChecker<'a, S> {
    subject: &'a S,
    /// The key of a record whose only use is to read the store's time.
    clock: KeyHash,
}

/// One run of a sequence.
struct SequenceRun<'a, S> {
    checker: &'a StoreChecker<'a, S>,
    identifiers: Identifiers,
    model: Model,
    /// What a key may have instead: a claim is busy in the last moment of a lease, and also when it contests the key in
    /// the next.
    alternatives: HashMap<KeyHash, Record>,
    /// How far times may be apart: the clock's tolerance and the duration of the longest step so far, since the store
    /// may have used any instant of that step.
    slack: Duration,
}

/// The store's time before and after a step.
#[derive(Clone, Copy)]
struct CallWindow {
    from: Timestamp,
    to: Timestamp,
}

impl<'a, S: Subject> StoreChecker<'a, S> {
    pub(super) async fn new(subject: &'a S) -> CheckResult<Self> {
        // On hold, so that it never expires.
        let work = TestOperation::new(subject.store()).hold().retention(LONG);
        expect_reply("claim", subject.store().claim(&work.request()).await)?;
        Ok(Self { subject, clock: work.key })
    }

    /// Erases the clock's record, which would never expire.
    pub(super) async fn close(&self) {
        let _ = self.store().erase(&self.clock).await;
    }

    /// Runs one sequence, and calls `count` before every step.
    pub(super) async fn run_sequence(
        &self,
        identifiers: Identifiers,
        steps: &[Transition],
        count: impl Fn(),
    ) -> CheckResult {
        let model = Model::default();
        let (alternatives, slack) = (HashMap::new(), Duration::ZERO);
        let mut run = SequenceRun { checker: self, identifiers, model, alternatives, slack };
        let mut verdict = Ok(());
        for step in steps {
            count();
            verdict = run.step(step).await;
            if verdict.is_err() {
                break;
            }
        }
        for key in &run.identifiers.keys {
            let _ = self.store().erase(key).await;
        }
        verdict
    }

    fn store(&self) -> &dyn Store {
        self.subject.store()
    }

    async fn now(&self) -> CheckResult<Timestamp> {
        let sighting = expect_reply("get", self.store().get(&self.clock).await)?;
        Ok(sighting.ok_or("the record of the clock, which is on hold, is gone")?.at)
    }
}

impl<S: Subject> SequenceRun<'_, S> {
    async fn step(&mut self, transition: &Transition) -> CheckResult {
        self.alternatives.clear();
        let from = self.checker.now().await?;
        match transition {
            Transition::One(step) => self.one(from, step).await?,
            Transition::Batch(steps) => self.batch(from, steps).await?,
            Transition::Purge => {
                expect_reply("purge", drain(self.checker.store()).await)?;
                self.model.purge(earlier(from, self.tolerance()));
                self.window(from).await?;
            }
            Transition::List { state, limit } => {
                let namespace = Some(self.identifiers.namespace.clone());
                let query = ListQuery { state: *state, namespace, after: None, limit: *limit };
                self.list(from, &query).await?;
            }
            Transition::Pass(span) => self.checker.subject.time().pass(*span).await,
        }
        self.compare_records().await
    }

    async fn one(&mut self, from: Timestamp, step: &IndexedStep) -> CheckResult {
        let request = self.identifiers.request(step);
        let reply = send(self.checker.store(), &request).await?;
        let window = self.window(from).await?;
        self.check_reply(&request, &reply, window)
    }

    async fn batch(&mut self, from: Timestamp, steps: &[IndexedStep]) -> CheckResult {
        let requests: Vec<StepRequest> =
            steps.iter().map(|step| self.identifiers.request(step)).collect();
        let replies = send_batch(self.checker.store(), &requests).await?;
        if replies.len() != requests.len() {
            return Err(format!("a batch of {} has {} answers", requests.len(), replies.len()));
        }
        let window = self.window(from).await?;
        let mut checked = requests.iter().zip(&replies);
        checked.try_for_each(|(request, reply)| self.check_reply(request, reply, window))
    }

    /// Finds the time that explains the reply, and makes the same step in the model.
    fn check_reply(
        &mut self,
        request: &StepRequest,
        reply: &StepReply,
        window: CallWindow,
    ) -> CheckResult {
        let moments = self.moments(window);
        let mut explanations = moments.iter().filter_map(|moment| {
            let (record, expected) = self.model.step(request, *moment);
            approx_eq(&expected, reply, self.slack).then_some(record)
        });
        if let Some(record) = explanations.next() {
            let is_contested = |it: &Option<Record>| it.as_ref().is_some_and(|it| it.contested);
            let differs = |other: &Option<Record>| is_contested(other) != is_contested(&record);
            let alternative = explanations.find(differs).flatten();
            self.alternatives.extend(alternative.map(|it| (it.key, it)));
            self.model.put(*request.key(), record);
            return Ok(());
        }
        let (_, expected) = self.model.step(request, moments[0]);
        let record = self.model.record(request.key());
        Err(format!(
            "{request:?}\n  was answered {reply:?}\n  must be      {expected:?}\n  on           {record:?}"
        ))
    }

    async fn list(&mut self, from: Timestamp, query: &ListQuery) -> CheckResult {
        let page = expect_reply("list", self.checker.store().list(query).await)?;
        let window = self.window(from).await?;
        let explains = |moment: &StepTime| {
            let expected = self.model.list(query, *moment);
            expected.len() == page.len()
                && expected.iter().zip(&page).all(|(one, other)| self.same(one, other))
        };
        if self.moments(window).iter().any(explains) {
            return Ok(());
        }
        let expected = self.model.list(query, self.moments(window)[0]);
        Err(format!("{query:?}\n  lists   {page:?}\n  must be {expected:?}"))
    }

    async fn compare_records(&mut self) -> CheckResult {
        for key in self.identifiers.keys {
            let seen = expect_reply("get", self.checker.store().get(&key).await)?;
            match (seen, self.model.record(&key)) {
                (None, None) => {}
                (None, Some(record)) => {
                    let now = self.checker.now().await?.after(self.tolerance());
                    if !record.is_expired(now) {
                        return Err(format!("there is no record, but must be {record:?}"));
                    }
                    self.model.put(key, None);
                }
                (Some(seen), None) => return Err(format!("nothing made {:?}", seen.record)),
                (Some(seen), Some(record)) => {
                    let alternative = self.alternatives.get(&key);
                    if alternative.is_none_or(|it| !self.same(it, &seen.record)) {
                        self.compare(record, &seen.record, seen.at)?;
                    }
                    self.adopt(key, seen.record);
                }
            }
        }
        Ok(())
    }

    fn compare(&self, record: &Record, seen: &Record, at: Timestamp) -> CheckResult {
        if record.is_expired(earlier(at, self.slack)) {
            return Err(format!("an expired record is shown at {at:?}: {seen:?}"));
        }
        let held = || {
            self.is_shared().then(|| purged(record.clone(), at.after(self.tolerance()))).flatten()
        };
        if self.same(record, seen) || held().is_some_and(|held| self.same(&held, seen)) {
            return Ok(());
        }
        Err(format!("{:?} at {at:?}:{}", seen.key, differences(seen, record)))
    }

    /// On a real clock, copies the store's times into the model, so that they do not drift apart.
    fn adopt(&mut self, key: KeyHash, seen: Record) {
        if self.is_shared() {
            self.model.put(key, Some(seen));
        }
    }

    fn same(&self, one: &Record, other: &Record) -> bool {
        let (mut one, mut other) = (one.clone(), other.clone());
        self.checker.subject.blank(&mut one);
        self.checker.subject.blank(&mut other);
        approx_eq(&one, &other, self.slack)
    }

    fn tolerance(&self) -> Duration {
        self.checker.subject.tolerance()
    }

    fn is_shared(&self) -> bool {
        !self.tolerance().is_zero()
    }

    async fn window(&mut self, from: Timestamp) -> CheckResult<CallWindow> {
        let to = self.checker.now().await?;
        self.slack = self.slack.max(self.tolerance() + to.since(from));
        Ok(CallWindow { from, to })
    }

    /// The instants at which the step may have happened: those of the call in their order, then those that the clock's
    /// tolerance allows. The order matters in a slow batch: a later claim of a key may find that the lease of an
    /// earlier one has ended.
    fn moments(&self, CallWindow { from, to }: CallWindow) -> Vec<StepTime> {
        const PARTS: u32 = 16;
        if !self.is_shared() {
            return vec![StepTime { now: from, purged: false }];
        }
        let (tolerance, part) = (self.tolerance(), to.since(from) / PARTS);
        let within = (0..PARTS).map(|number| from.after(part * number));
        let instants = within.chain([to, earlier(from, tolerance), to.after(tolerance)]);
        instants.flat_map(|now| [false, true].map(|purged| StepTime { now, purged })).collect()
    }
}

fn earlier(at: Timestamp, span: Duration) -> Timestamp {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_sub(millis))
}
