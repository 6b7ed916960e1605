//! Plays a sequence on the store and judges every answer.
//!
//! Store time is read from the store itself, before and after each call. On a manual clock that is
//! one instant. On a real one the call happened in between, and the model follows whichever instant
//! explains the answer.

use std::time::Duration;

use semel_core::{KeyHash, ListQuery, Record, Store, Timestamp};

use super::{
    Subject, Verdict,
    alike::{alike, differences},
    ask::{ask, ask_many, failed},
    model::{Answer, Call, Model, Moment, purged},
    transition::{Move, Transition},
    world::World,
};
use crate::{
    promises::purge::drain,
    work::{LONG, Work},
};

/// A store on the test bench.
#[derive(Debug)]
pub(super) struct Bench<'a, S> {
    subject: &'a S,
    /// A record that is only there to tell the time by.
    clock: KeyHash,
}

/// One sequence in play.
struct Game<'a, S> {
    bench: &'a Bench<'a, S>,
    world: World,
    model: Model,
    /// How far times may be apart: as long as the longest step took, since a store may have dated a record from
    /// either end of it.
    slack: Duration,
}

/// When a call was made, by the store's clock.
#[derive(Clone, Copy)]
struct Window {
    from: Timestamp,
    to: Timestamp,
}

impl<'a, S: Subject> Bench<'a, S> {
    pub(super) async fn new(subject: &'a S) -> Verdict<Self> {
        // On hold, so that it never expires.
        let work = Work::new(subject.store()).hold().retention(LONG);
        failed("claim", subject.store().claim(&work.request()).await)?;
        Ok(Self { subject, clock: work.key })
    }

    /// Leaves nothing behind that never expires.
    pub(super) async fn close(&self) {
        let _ = self.store().erase(&self.clock).await;
    }

    /// Plays one sequence; `count` is told of every step before it is made.
    pub(super) async fn play(
        &self,
        world: World,
        steps: &[Transition],
        count: impl Fn(),
    ) -> Verdict {
        let model = Model::default();
        let mut game = Game { bench: self, world, model, slack: Duration::ZERO };
        let mut verdict = Ok(());
        for step in steps {
            count();
            verdict = game.step(step).await;
            if verdict.is_err() {
                break;
            }
        }
        for key in &game.world.keys {
            let _ = self.store().erase(key).await;
        }
        verdict
    }

    fn store(&self) -> &dyn Store {
        self.subject.store()
    }

    async fn now(&self) -> Verdict<Timestamp> {
        let sighting = failed("get", self.store().get(&self.clock).await)?;
        Ok(sighting.ok_or("a claim on hold that nobody touched is gone")?.at)
    }
}

impl<S: Subject> Game<'_, S> {
    async fn step(&mut self, transition: &Transition) -> Verdict {
        let from = self.bench.now().await?;
        match transition {
            Transition::One(step) => self.one(from, step).await?,
            Transition::Batch(steps) => self.batch(from, steps).await?,
            Transition::Purge => {
                failed("purge", drain(self.bench.store()).await)?;
                self.model.purge(earlier(from, self.tolerance()));
                self.window(from).await?;
            }
            Transition::List { state, limit } => {
                let namespace = Some(self.world.namespace.clone());
                let query = ListQuery { state: *state, namespace, after: None, limit: *limit };
                self.list(from, &query).await?;
            }
            Transition::Pass(span) => self.bench.subject.time().pass(*span).await,
        }
        self.compare_records().await
    }

    async fn one(&mut self, from: Timestamp, step: &Move) -> Verdict {
        let call = self.world.call(step);
        let answer = ask(self.bench.store(), &call).await?;
        let window = self.window(from).await?;
        self.judge(&call, &answer, window)
    }

    async fn batch(&mut self, from: Timestamp, steps: &[Move]) -> Verdict {
        let calls: Vec<Call> = steps.iter().map(|step| self.world.call(step)).collect();
        let answers = ask_many(self.bench.store(), &calls).await?;
        if answers.len() != calls.len() {
            return Err(format!("a batch of {} has {} answers", calls.len(), answers.len()));
        }
        let window = self.window(from).await?;
        let mut judged = calls.iter().zip(&answers);
        judged.try_for_each(|(call, answer)| self.judge(call, answer, window))
    }

    /// Finds the moment that explains the answer, and lets the model follow.
    fn judge(&mut self, call: &Call, answer: &Answer, window: Window) -> Verdict {
        let moments = self.moments(window);
        for moment in &moments {
            let (record, expected) = self.model.step(call, *moment);
            if alike(&expected, answer, self.slack) {
                self.model.put(*call.key(), record);
                return Ok(());
            }
        }
        let (_, expected) = self.model.step(call, moments[0]);
        let record = self.model.record(call.key());
        Err(format!(
            "{call:?}\n  was answered {answer:?}\n  must be      {expected:?}\n  on           {record:?}"
        ))
    }

    async fn list(&mut self, from: Timestamp, query: &ListQuery) -> Verdict {
        let page = failed("list", self.bench.store().list(query).await)?;
        let window = self.window(from).await?;
        let explains = |moment: &Moment| {
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

    async fn compare_records(&mut self) -> Verdict {
        for key in self.world.keys {
            let seen = failed("get", self.bench.store().get(&key).await)?;
            match (seen, self.model.record(&key)) {
                (None, None) => {}
                (None, Some(record)) => {
                    let now = self.bench.now().await?.after(self.tolerance());
                    if !record.is_expired(now) {
                        return Err(format!("there is no record, but must be {record:?}"));
                    }
                    self.model.put(key, None);
                }
                (Some(seen), None) => return Err(format!("nothing made {:?}", seen.record)),
                (Some(seen), Some(record)) => {
                    self.compare(record, &seen.record, seen.at)?;
                    self.adopt(key, seen.record);
                }
            }
        }
        Ok(())
    }

    fn compare(&self, record: &Record, seen: &Record, at: Timestamp) -> Verdict {
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

    /// On a real clock the model takes over the store's times, so that they do not drift apart.
    fn adopt(&mut self, key: KeyHash, seen: Record) {
        if self.is_shared() {
            self.model.put(key, Some(seen));
        }
    }

    fn same(&self, one: &Record, other: &Record) -> bool {
        let (mut one, mut other) = (one.clone(), other.clone());
        self.bench.subject.blank(&mut one);
        self.bench.subject.blank(&mut other);
        alike(&one, &other, self.slack)
    }

    fn tolerance(&self) -> Duration {
        self.bench.subject.tolerance()
    }

    fn is_shared(&self) -> bool {
        !self.tolerance().is_zero()
    }

    async fn window(&mut self, from: Timestamp) -> Verdict<Window> {
        let to = self.bench.now().await?;
        self.slack = self.slack.max(self.tolerance() + to.since(from));
        Ok(Window { from, to })
    }

    fn moments(&self, Window { from, to }: Window) -> Vec<Moment> {
        if !self.is_shared() {
            return vec![Moment { now: from, purged: false }];
        }
        let tolerance = self.tolerance();
        let instants = [from, to, earlier(from, tolerance), to.after(tolerance)];
        let moment = |now| [false, true].map(|purged| Moment { now, purged });
        instants.into_iter().flat_map(moment).collect()
    }
}

fn earlier(at: Timestamp, span: Duration) -> Timestamp {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_sub(millis))
}
