//! A worker: takes a batch of calls, and sends what they ask in as few trips as it can.

use std::sync::Arc;

use semel_core::{
    Error, Result,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::batch::{Batch, Batches};
use semel_remote::{ConnectedWorker, WorkerGroup};
use tokio::sync::watch;

use crate::{
    connection::Line,
    error::{is_closed, unavailable},
    request::Job,
    round_trip::{Place, Round},
    settings::Plan,
};

/// Batches that one trip takes at most.
const SHARE: usize = 4;

type Calls = Batches<StoreRequest, Result<StoreReply>>;

/// One connection and the calls that go over it.
#[derive(Debug)]
pub(crate) struct Worker {
    plan: Arc<Plan>,
    line: Line,
    crew: WorkerGroup,
    /// Told to the crew while there is a connection.
    connected: Option<ConnectedWorker>,
    /// Changes when another connection of the store was lost.
    checks: watch::Receiver<()>,
}

impl Worker {
    pub(crate) async fn open(plan: Arc<Plan>, crew: &WorkerGroup) -> Result<Self> {
        let (checks, line) = (plan.check.subscribe(), Line::open(plan.clone()).await?);
        Ok(Self { plan, line, crew: crew.clone(), connected: Some(crew.connected()), checks })
    }

    /// One that opens its connection by itself, on this runtime.
    pub(crate) fn begin(plan: Arc<Plan>, crew: &WorkerGroup) -> Self {
        let (checks, line) = (plan.check.subscribe(), Line::begin(plan.clone()));
        Self { plan, line, crew: crew.clone(), connected: None, checks }
    }

    pub(crate) async fn run(mut self, mut batches: Calls) {
        while let Some(batch) = self.next(&mut batches).await {
            let mut taken = vec![batch];
            while taken.len() < SHARE
                && let Some(batch) = batches.take_share()
            {
                taken.push(batch);
            }
            self.serve_all(taken).await;
        }
    }

    /// The next batch. Who has no connection leaves it to those who have; if nobody has, it is refused.
    async fn next(
        &mut self,
        batches: &mut Calls,
    ) -> Option<Batch<StoreRequest, Result<StoreReply>>> {
        loop {
            while !self.line.is_up() {
                let (crew, mut connected) = (&self.crew, self.crew.watch());
                let nobody = crew.has_no_connection();
                tokio::select! {
                    biased;
                    () = self.line.opened() => self.connected = Some(crew.connected()),
                    // Before the next call: somebody may have a connection by now.
                    _ = connected.changed() => {}
                    batch = batches.take_if(|| crew.has_no_connection()), if nobody => return batch,
                }
            }
            tokio::select! {
                biased;
                // The plan, which is the sender, lives as long as this.
                Ok(()) = self.checks.changed() => self.check().await,
                batch = batches.gather() => return batch,
            }
        }
    }

    async fn check(&mut self) {
        self.line.check().await;
        if !self.line.is_up() {
            self.connected = None;
        }
    }

    /// Serves batches in one trip, if that is enough.
    async fn serve_all(&mut self, batches: Vec<Batch<StoreRequest, Result<StoreReply>>>) {
        let now = self.plan.clock.at_least();
        let place = |call| Place { job: Job::new(call, now, &self.plan.claims), answer: None };
        let mut places = Vec::with_capacity(batches.iter().map(|batch| batch.calls.len()).sum());
        let mut replies = Vec::with_capacity(batches.len());
        for batch in batches {
            replies.push((batch.calls.len(), batch.reply));
            places.extend(batch.calls.into_iter().map(place));
        }
        let given_up = self.serve(&mut places).await;
        let given_up = given_up.unwrap_or_else(|| unavailable("redis: a call was not served"));
        let mut answers =
            places.into_iter().map(|place| place.answer.unwrap_or_else(|| Err(given_up.clone())));
        for (count, reply) in replies {
            reply.send(answers.by_ref().take(count).collect());
        }
    }

    /// Why some were not served. Calls whose connection was closed under them, and that may be made twice, are made
    /// again on a new one: only a server that cannot be reached, or does not answer, is away.
    async fn serve(&mut self, places: &mut [Place]) -> Option<Error> {
        let lost = self.serve_once(places).await?;
        if !is_closed(&lost) {
            return Some(lost);
        }
        let now = self.plan.clock.at_least();
        let mut is_any_left = false;
        for place in places.iter_mut().filter(|place| place.answer.is_none()) {
            match place.job.may_repeat() {
                true => place.job.repeat(now, &self.plan.claims),
                false => place.answer = Some(Err(lost.clone())),
            }
            is_any_left |= place.answer.is_none();
        }
        if is_any_left { self.serve_once(places).await } else { Some(lost) }
    }

    async fn serve_once(&mut self, places: &mut [Place]) -> Option<Error> {
        let link = match self.line.up().await {
            Ok(link) => link,
            Err(error) => return Some(error),
        };
        // It may have come up just now.
        self.connected.get_or_insert_with(|| self.crew.connected());
        let mut round = Round { plan: &self.plan, link };
        let lost = match self.plan.odds.refuse() {
            Ok(()) => round.serve(places).await.err()?,
            Err(error) => error,
        };
        self.connected = None;
        self.line.lost(&lost);
        // The next connection is newer than whatever made others be checked.
        self.checks.mark_unchanged();
        Some(lost)
    }
}
