//! A worker: takes a batch of calls, and sends what they ask in as few trips as it can.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use redis::{Cmd, cmd};
use semel_core::{
    Error, KeyHash, Result, Timestamp,
    batch::{Batch, Batches},
    remote::{ByRandom, Connected, Crew},
    steps::{Call, Said},
};

use crate::{
    chores::look_at,
    error::{Trouble, odd_reply, unavailable},
    job::{Job, Progress, Watch},
    line::Line,
    link::{Link, Plan, Reply, each, time_of},
    script::{How, STUCK},
};

/// A trip with more bytes of outcomes takes no more calls: it has to be over within the call timeout.
const TRIP_BYTES: usize = 8 << 20;
/// Batches that one trip takes at most.
const SHARE: usize = 4;

type Calls = Batches<Call, Result<Said>>;

/// One connection and the calls that go over it.
#[derive(Debug)]
pub(crate) struct Worker {
    plan: Arc<Plan>,
    line: Line,
    crew: Crew,
    /// Told to the crew while there is a connection.
    connected: Option<Connected>,
}

/// What one batch is in.
struct Round<'a> {
    plan: &'a Plan,
    link: &'a mut Link,
    /// The server's time, once it told.
    told: Option<Timestamp>,
}

/// A job and its answer, once it has one.
struct Place {
    job: Job,
    answer: Option<Result<Said>>,
}

impl Worker {
    pub(crate) async fn open(plan: Arc<Plan>, crew: &Crew) -> Result<Self> {
        let line = Line::open(plan.clone()).await?;
        Ok(Self { plan, line, crew: crew.clone(), connected: Some(crew.connected()) })
    }

    /// One that opens its connection by itself, on this runtime.
    pub(crate) fn begin(plan: Arc<Plan>, crew: &Crew) -> Self {
        let line = Line::begin(plan.clone());
        Self { plan, line, crew: crew.clone(), connected: None }
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
    async fn next(&mut self, batches: &mut Calls) -> Option<Batch<Call, Result<Said>>> {
        while !self.line.is_up() {
            let (crew, mut connected) = (&self.crew, self.crew.watch());
            let nobody = crew.is_cut_off();
            tokio::select! {
                biased;
                () = self.line.opened() => self.connected = Some(crew.connected()),
                // Before the next call: somebody may have a connection by now.
                _ = connected.changed() => {}
                batch = batches.take_if(|| crew.is_cut_off()), if nobody => return batch,
            }
        }
        batches.gather().await
    }

    /// Serves batches in one trip, if that is enough.
    async fn serve_all(&mut self, batches: Vec<Batch<Call, Result<Said>>>) {
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
            reply.tell(answers.by_ref().take(count).collect());
        }
    }

    /// Why some were not served.
    async fn serve(&mut self, places: &mut [Place]) -> Option<Error> {
        let link = match self.line.up().await {
            Ok(link) => link,
            Err(error) => return Some(error),
        };
        // It may have come up just now.
        self.connected.get_or_insert_with(|| self.crew.connected());
        let mut round = Round { plan: &self.plan, link, told: None };
        let lost = round.serve(places).await.err()?;
        self.connected = None;
        self.line.lost(&lost);
        Some(lost)
    }
}

impl Round<'_> {
    /// Serves all places, or says why the connection is of no use any more.
    async fn serve(&mut self, places: &mut [Place]) -> Result<()> {
        for wave in waves(places) {
            let mut open = wave;
            while !open.is_empty() {
                self.trip(places, &open).await?;
                open.retain(|at| places[*at].answer.is_none());
            }
        }
        Ok(())
    }

    /// Asks what these places ask next, all at once.
    async fn trip(&mut self, places: &mut [Place], open: &[usize]) -> Result<()> {
        let (ending, open): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|at| places[**at].job.is_ending());
        let (now, is_cluster) = (self.plan.clock.now(), self.link.is_cluster());
        let mut refusals = match is_cluster {
            true => self.watched_first(places, &open, now).await?,
            false => HashMap::new(),
        };
        let mut commands = Vec::with_capacity(open.len() + 2);
        let mut is_watch = Vec::with_capacity(open.len());
        for at in &open {
            let job = &places[*at].job;
            let watch = if is_cluster { None } else { self.watch(job, now) };
            is_watch.push(watch.is_some());
            commands.extend(watch);
            commands.push(job.command(&self.plan.names));
        }
        // Many in one script cost the server half of what as many scripts do. In a cluster it has one key.
        let together = if is_cluster { 1 } else { ending.len().max(1) };
        commands.extend(ending.chunks(together).map(|ending| {
            let jobs: Vec<&Job> = ending.iter().map(|at| &places[*at].job).collect();
            Job::finish(&jobs, &self.plan.names)
        }));
        let asks_time = self.plan.clock.is_stale();
        if asks_time {
            commands.push(cmd("TIME"));
        }
        let asked = Instant::now();
        let mut replies = self.link.send(commands, self.plan.call_timeout).await?;
        let now = self.plan.clock.now();
        let mut taking = Taking { round: self, now, changing: HashSet::default(), broken: None };
        for (index, (at, is_watch)) in open.iter().zip(is_watch).enumerate() {
            let watched = match is_watch {
                true => replies.next(),
                false if refusals.is_empty() => None,
                false => refusals.remove(&index),
            };
            let reply = replies.next().ok_or_else(odd_reply)?;
            let reply = match watched {
                Some(watched) => joined(watched, reply),
                None => reply,
            };
            taking.take(&mut places[*at], reply);
        }
        for ending in ending.chunks(together) {
            let reply = replies.next().ok_or_else(odd_reply)?;
            for (at, reply) in ending.iter().zip(each(reply, ending.len())) {
                taking.take(&mut places[*at], reply);
            }
        }
        let broken = taking.broken;
        if asks_time && let Some(Ok(time)) = replies.next() {
            self.told = Some(time_of(&time)?);
        }
        if let Some(told) = self.told.take() {
            self.plan.clock.tell(told, asked);
        }
        broken.map_or(Ok(()), Err)
    }

    fn watch(&self, job: &Job, now: Timestamp) -> Option<Cmd> {
        let (mut add, at) = match job.watch(now)? {
            Watch::Held(at) => {
                let mut add = cmd("ZADD");
                add.arg(&self.plan.names.held);
                (add, at)
            }
            // In full: this is seldom, and a script that the server forgot is no trouble then.
            Watch::Stuck(at) => (STUCK.call(self.plan.names.stuck.as_bytes(), How::InFull), at),
        };
        add.arg(look_at(at)).arg(&job.key().as_bytes()[..]);
        Some(add)
    }

    /// The servers of a cluster know no common order, so there the index is written in a trip before.
    async fn watched_first(
        &mut self,
        places: &[Place],
        open: &[usize],
        now: Timestamp,
    ) -> Result<HashMap<usize, Reply>> {
        let watches = open.iter().enumerate();
        let watches =
            watches.filter_map(|(index, at)| Some((index, self.watch(&places[*at].job, now)?)));
        let (indexes, commands): (Vec<_>, Vec<_>) = watches.unzip();
        let replies = self.link.send(commands, self.plan.call_timeout).await?;
        Ok(indexes.into_iter().zip(replies).filter(|(_, reply)| reply.is_err()).collect())
    }
}

/// The replies of one trip are being taken.
struct Taking<'r, 'a> {
    round: &'r mut Round<'a>,
    now: Timestamp,
    /// What a twin is about to change must not be answered from before: those behind it read again.
    changing: HashSet<KeyHash, ByRandom>,
    /// Why the connection is of no use any more.
    broken: Option<Error>,
}

impl Taking<'_, '_> {
    fn take(&mut self, place: &mut Place, reply: Reply) {
        let Round { plan, told, .. } = &mut *self.round;
        match place.job.take(reply, self.now, told, &plan.claims) {
            Progress::Done(answer) => place.answer = Some(answer),
            Progress::Read(_) if self.changing.contains(place.job.key()) => {}
            Progress::Read(said) => place.answer = Some(Ok(said)),
            Progress::Again if place.job.is_changing() => {
                self.changing.insert(*place.job.key());
            }
            Progress::Again => {}
            Progress::Broken(error) => {
                place.answer = Some(Err(error.clone()));
                self.broken = Some(error);
            }
        }
    }
}

/// A record that may be missing in its index may have been written all the same.
fn joined(watched: Reply, reply: Reply) -> Reply {
    match (watched, reply) {
        (Err(Trouble::Call(error)), Ok(_)) => Err(Trouble::Call(unavailable(error.to_string()))),
        (Err(trouble @ Trouble::Link(_)), _) => Err(trouble),
        (_, reply) => reply,
    }
}

/// Splits a batch so that the calls on one key happen in their order, and large outcomes go in several
/// trips. Claims of one key go together: the server takes them in this order too, and only one of them
/// can change anything at once.
fn waves(places: &[Place]) -> Vec<Vec<usize>> {
    let (mut waves, mut rest) = (Vec::new(), (0..places.len()).collect::<Vec<_>>());
    if places.iter().all(|place| place.job.is_claim()) {
        return vec![rest];
    }
    while !rest.is_empty() {
        let mut claims_only: HashMap<KeyHash, bool, ByRandom> = HashMap::default();
        let (mut wave, mut later, mut bytes) = (Vec::with_capacity(rest.len()), Vec::new(), 0);
        for at in rest {
            let job = &places[at].job;
            let fits = match claims_only.get(job.key()) {
                None => bytes < TRIP_BYTES,
                Some(only) => *only && job.is_claim(),
            };
            claims_only.insert(*job.key(), fits && job.is_claim());
            if fits {
                bytes += job.outcome_bytes();
                wave.push(at);
            } else {
                later.push(at);
            }
        }
        waves.push(wave);
        rest = later;
    }
    waves
}

#[cfg(test)]
mod tests {
    use semel_core::{CompleteRequest, Decision, Nonce, Outcome, Owner, ResolveRequest};

    use super::*;
    use crate::claims::Claims;

    fn completion(key: u8, bytes: usize) -> Place {
        let owner = Owner { key: KeyHash::from_bytes([key; 32]), nonce: Nonce::random(), token: 1 };
        let outcome = Arc::new(Outcome::success(vec![0; bytes]));
        place(Call::Complete(CompleteRequest { owner, outcome }))
    }

    fn decision(key: u8, bytes: usize) -> Place {
        let decision = Decision::Complete(Arc::new(Outcome::success(vec![0; bytes])));
        let key = KeyHash::from_bytes([key; 32]);
        place(Call::Resolve(ResolveRequest { key, seen_nonce: None, seen_token: 1, decision }))
    }

    fn place(call: Call) -> Place {
        Place { job: Job::new(call, Timestamp::default(), &Claims::new()), answer: None }
    }

    #[test]
    fn calls_on_one_key_happen_in_their_order() {
        let places = [1, 2, 1, 3, 1].map(|key| completion(key, 1));
        assert_eq!(waves(&places), [vec![0, 1, 3], vec![2], vec![4]]);
    }

    #[test]
    fn large_outcomes_go_in_several_trips() {
        let places = [(1, TRIP_BYTES), (2, 1), (1, 1), (2, 1)];
        let places = places.map(|(key, bytes)| completion(key, bytes));
        assert_eq!(waves(&places), [vec![0], vec![1, 2], vec![3]]);
        let places = [decision(1, TRIP_BYTES), completion(2, 1)];
        assert_eq!(waves(&places), [vec![0], vec![1]]);
    }
}
