//! Sends the commands of several requests in one round trip, and gives each its reply.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use redis::{Cmd, Value, cmd};
use semel_core::{Error, KeyHash, Result, Timestamp, steps::StoreReply};
use semel_remote::BuildPrefixHasher;

use crate::{
    connection::{Link, Reply, each, time_of},
    error::{Trouble, unavailable, wrong_record},
    maintenance::look_at,
    request::{Job, Progress, Watch},
    script::{How, STUCK},
    settings::Plan,
};

/// A trip with more bytes of outcomes takes no more calls: it has to be over within the call timeout.
const TRIP_BYTES: usize = 8 << 20;

/// What one batch is in.
pub(crate) struct Round<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) link: &'a mut Link,
}

/// A job and its answer, once it has one.
pub(crate) struct Place {
    pub(crate) job: Job,
    pub(crate) answer: Option<Result<StoreReply>>,
}

impl Round<'_> {
    /// Serves all places, or says why the connection is of no use any more.
    pub(crate) async fn serve(&mut self, places: &mut [Place]) -> Result<()> {
        for wave in waves(places) {
            let mut open = wave;
            while !open.is_empty() {
                match open.iter().any(|at| places[*at].job.is_rearming()) {
                    true => self.trip(places, &next_in_order(places, &open)).await?,
                    false => self.trip(places, &open).await?,
                }
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
        let mut taking = Taking::new(self.plan);
        for (index, (at, is_watch)) in open.iter().zip(is_watch).enumerate() {
            let watched = match is_watch {
                true => replies.next(),
                false if refusals.is_empty() => None,
                false => refusals.remove(&index),
            };
            let reply = replies.next().unwrap_or(Err(Trouble::Odd));
            let reply = match watched {
                Some(watched) => joined(watched, reply),
                None => reply,
            };
            taking.take(places, *at, reply);
        }
        for ending in ending.chunks(together) {
            let reply = replies.next().unwrap_or(Err(Trouble::Odd));
            for (at, reply) in ending.iter().zip(each(reply, ending.len())) {
                taking.take(places, *at, reply);
            }
        }
        if asks_time {
            taking.take_time(replies.next());
        }
        if taking.is_mixed_up {
            taking.condemn(places, open.iter().chain(&ending));
        }
        if let Some(told) = taking.told {
            self.plan.clock.tell(told, asked);
        }
        taking.broken.map_or(Ok(()), Err)
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
struct Taking<'a> {
    plan: &'a Plan,
    now: Timestamp,
    /// The server's time, once it told.
    told: Option<Timestamp>,
    /// What a twin is about to change must not be answered from before: those behind it read again.
    changing: HashSet<KeyHash, BuildPrefixHasher>,
    /// Why the connection is of no use any more.
    broken: Option<Error>,
    is_mixed_up: bool,
    /// Places whose reply is no answer to what they asked.
    strange: Vec<(usize, Error)>,
}

impl<'a> Taking<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            now: plan.clock.now(),
            told: None,
            changing: HashSet::default(),
            broken: None,
            is_mixed_up: false,
            strange: Vec::new(),
        }
    }

    fn take(&mut self, places: &mut [Place], at: usize, reply: Reply) {
        let place = &mut places[at];
        match place.job.take(reply, self.now, &mut self.told, &self.plan.claims) {
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
            Progress::MixedUp(error) => {
                self.is_mixed_up = true;
                self.strange.push((at, error));
            }
        }
    }

    fn take_time(&mut self, reply: Option<Reply>) {
        let Some(Ok(time)) = reply else { return };
        match time_of(&time) {
            Ok(time) => self.told = Some(time),
            Err(_) => self.is_mixed_up = true,
        }
    }

    /// Where one reply is another call's, any may be: most of them do not say whose they are. Only who was
    /// given a strange one is told what it is; the others may try again.
    #[cold]
    fn condemn<'t>(&mut self, places: &mut [Place], trip: impl Iterator<Item = &'t usize>) {
        for at in trip {
            places[*at].job.forget(&self.plan.claims);
            places[*at].answer = Some(Err(wrong_record()));
        }
        for (at, error) in self.strange.drain(..) {
            places[at].answer = Some(Err(error));
        }
        (self.told, self.broken) = (None, Some(wrong_record()));
    }
}

/// A record that may be missing in its index may have been written all the same.
fn joined(watched: Reply, reply: Reply) -> Reply {
    match (watched, reply) {
        (Err(Trouble::Call(error)), Ok(_)) => Err(Trouble::Call(unavailable(error.to_string()))),
        (Err(trouble @ (Trouble::Link(_) | Trouble::Odd)), _) => Err(trouble),
        (Ok(added), _) if !matches!(added, Value::Int(_)) => Err(Trouble::Odd),
        (_, reply) => reply,
    }
}

/// Leaves out claims that would overtake others. One that gives its owner the lease again takes fewer trips than an
/// earlier one of the same key that puts it on hold, and waits until that one is answered.
fn next_in_order(places: &[Place], open: &[usize]) -> Vec<usize> {
    let mut earlier: HashSet<KeyHash, BuildPrefixHasher> = HashSet::default();
    let mut next = open.to_vec();
    next.retain(|at| {
        let job = &places[*at].job;
        earlier.insert(*job.key()) || !job.is_rearming()
    });
    next
}

/// Splits the calls without an answer so that those on one key happen in their order, and large outcomes go in
/// several trips. Claims of one key go together: the server takes them in this order too, and only one of them
/// can change anything at once. A call that has an answer is not sent again.
fn waves(places: &[Place]) -> Vec<Vec<usize>> {
    let mut rest = (0..places.len()).collect::<Vec<_>>();
    rest.retain(|at| places[*at].answer.is_none());
    if rest.iter().all(|at| places[*at].job.is_claim()) {
        return vec![rest];
    }
    let mut waves = Vec::new();
    while !rest.is_empty() {
        let mut claims_only: HashMap<KeyHash, bool, BuildPrefixHasher> = HashMap::default();
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
    use std::sync::Arc;

    use semel_core::{
        ClaimRequest, CompleteRequest, Decision, ErrorKind, Fingerprint, Nonce, OnLostOwner,
        Outcome, Owner, ResolveRequest, Span, Terms, steps::StoreRequest,
    };

    use super::*;
    use crate::{RedisStore, granted_claims::Claims, meta::Role};

    fn completion(key: u8, bytes: usize) -> Place {
        let owner = Owner { key: KeyHash::from_bytes([key; 32]), nonce: Nonce::random(), token: 1 };
        let outcome = Arc::new(Outcome::success(vec![0; bytes]));
        place(StoreRequest::Complete(CompleteRequest { owner, outcome }))
    }

    fn decision(key: u8, bytes: usize) -> Place {
        let decision = Decision::Complete(Arc::new(Outcome::success(vec![0; bytes])));
        let key = KeyHash::from_bytes([key; 32]);
        place(StoreRequest::Resolve(ResolveRequest {
            key,
            seen_nonce: None,
            seen_token: 1,
            decision,
        }))
    }

    fn place(call: StoreRequest) -> Place {
        Place { job: Job::new(call, Timestamp::default(), &Claims::new()), answer: None }
    }

    #[test]
    fn calls_on_one_key_happen_in_their_order() {
        let places = [1, 2, 1, 3, 1].map(|key| completion(key, 1));
        assert_eq!(waves(&places), [vec![0, 1, 3], vec![2], vec![4]]);
    }

    #[test]
    fn a_call_that_has_an_answer_is_not_sent_again() {
        let mut places = [1, 2, 1].map(|key| completion(key, 1));
        places[0].answer = Some(Err(wrong_record()));
        assert_eq!(waves(&places), [vec![1, 2]]);
        let claims = [claim(1), claim(2)].map(StoreRequest::Claim).map(place);
        let mut places: Vec<_> = claims.into_iter().chain([completion(3, 1)]).collect();
        places[2].answer = Some(Err(wrong_record()));
        assert_eq!(waves(&places), [vec![0, 1]]);
    }

    #[test]
    fn large_outcomes_go_in_several_trips() {
        let places = [(1, TRIP_BYTES), (2, 1), (1, 1), (2, 1)];
        let places = places.map(|(key, bytes)| completion(key, bytes));
        assert_eq!(waves(&places), [vec![0], vec![1, 2], vec![3]]);
        let places = [decision(1, TRIP_BYTES), completion(2, 1)];
        assert_eq!(waves(&places), [vec![0], vec![1]]);
    }

    const DAY: Span = Span::from_millis(86_400_000);

    fn claim(key: u8) -> ClaimRequest {
        ClaimRequest {
            key: KeyHash::from_bytes([key; 32]),
            fingerprint: Fingerprint::of_bytes(b"this"),
            nonce: Nonce::random(),
            terms: Terms {
                lease: DAY,
                on_lost_owner: OnLostOwner::Rerun,
                max_attempts: None,
                retention: DAY,
                failure_retention: DAY,
            },
            labels: None,
        }
    }

    fn is_remembered(plan: &Plan, claim: &ClaimRequest) -> bool {
        let owner = Owner { key: claim.key, nonce: claim.nonce, token: 1 };
        let outcome = Arc::new(Outcome::success("x"));
        plan.claims.end(&CompleteRequest { owner, outcome }, Timestamp::default()).is_some()
    }

    /// Serves two claims with these replies, and a time.
    fn served(replies: [Value; 2], time: Value) -> (Plan, [ClaimRequest; 2], Vec<Place>) {
        let plan = RedisStore::builder("redis://localhost").plan(Role::Store).expect("it is right");
        let claims = [claim(1), claim(2)];
        let mut places: Vec<_> =
            claims.iter().cloned().map(StoreRequest::Claim).map(place).collect();
        let mut taking = Taking::new(&plan);
        for (at, reply) in replies.into_iter().enumerate() {
            taking.take(&mut places, at, Ok(reply));
        }
        taking.take_time(Some(Ok(time)));
        if taking.is_mixed_up {
            taking.condemn(&mut places, [0, 1].iter());
            assert_eq!(taking.broken.expect("it is lost").kind(), ErrorKind::Unavailable);
            assert_eq!(taking.told, None);
        }
        (plan, claims, places)
    }

    fn seconds() -> Value {
        Value::Array([b"1", b"0"].map(|part| Value::BulkString(part.to_vec())).into())
    }

    #[test]
    fn a_trip_of_answers_is_believed() {
        let (plan, claims, places) = served([Value::Nil, Value::Nil], seconds());
        assert!(places.iter().all(|place| matches!(place.answer, Some(Ok(_)))));
        assert!(claims.iter().all(|claim| is_remembered(&plan, claim)));
    }

    #[test]
    fn one_reply_that_is_no_answer_condemns_its_trip() {
        for (replies, time) in
            [([Value::Nil, Value::Okay], seconds()), ([Value::Nil, Value::Nil], Value::Okay)]
        {
            let (plan, claims, places) = served(replies, time);
            for (place, claim) in places.iter().zip(&claims) {
                let Some(Err(error)) = &place.answer else { panic!("{:?}", place.answer) };
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(!is_remembered(&plan, claim));
            }
        }
    }
}
