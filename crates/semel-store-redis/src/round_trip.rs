//! Sends the commands of several requests in one round trip, and gives each request its reply.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use redis::{Cmd, Value, cmd};
use semel_core::{Error, KeyHash, Result, Timestamp, steps::StoreReply};
use semel_remote::BuildPrefixHasher;

use crate::{
    connection::{CommandReply, RedisConnection, split_array, time_of},
    error::{CommandError, mixed_up_replies, unavailable},
    maintenance::check_score,
    request::{IndexAdd, RedisRequest, RequestProgress},
    script::{ADD_STUCK, ScriptCall},
    settings::RedisSettings,
};

/// Bytes of outcomes after which a trip takes no more requests: it has to end within the call timeout.
const TRIP_BYTES: usize = 8 << 20;

/// Round trips over one connection.
pub(crate) struct RoundTrip<'a> {
    pub(crate) settings: &'a RedisSettings,
    pub(crate) connection: &'a mut RedisConnection,
}

/// A request, and its reply once there is one.
pub(crate) struct PendingRequest {
    pub(crate) request: RedisRequest,
    pub(crate) reply: Option<Result<StoreReply>>,
}

impl RoundTrip<'_> {
    /// Serves all requests. An error means that the connection cannot be used any more.
    pub(crate) async fn serve(&mut self, requests: &mut [PendingRequest]) -> Result<()> {
        for group in trip_groups(requests) {
            let mut unanswered = group;
            while !unanswered.is_empty() {
                match unanswered.iter().any(|at| requests[*at].request.is_lease_renewing_claim()) {
                    true => self.trip(requests, &next_in_order(requests, &unanswered)).await?,
                    false => self.trip(requests, &unanswered).await?,
                }
                unanswered.retain(|at| requests[*at].reply.is_none());
            }
        }
        Ok(())
    }

    /// Sends the next commands of these requests together.
    async fn trip(&mut self, requests: &mut [PendingRequest], unanswered: &[usize]) -> Result<()> {
        let (completions, unanswered): (Vec<usize>, Vec<usize>) =
            unanswered.iter().partition(|at| requests[**at].request.is_completion_write());
        let (now, is_cluster) = (self.settings.clock.now(), self.connection.is_cluster());
        let requests_of_trip = unanswered.iter().map(|at| &requests[*at].request.request);
        let timeout =
            self.settings.pace.batch_timeout(self.settings.call_timeout, requests_of_trip);
        let mut refusals = match is_cluster {
            true => self.add_to_indexes_first(requests, &unanswered, now, timeout).await?,
            false => HashMap::new(),
        };
        let mut commands = Vec::with_capacity(unanswered.len() + 2);
        let mut has_index_command = Vec::with_capacity(unanswered.len());
        for at in &unanswered {
            let request = &requests[*at].request;
            let index_command = if is_cluster { None } else { self.index_command(request, now) };
            has_index_command.push(index_command.is_some());
            commands.extend(index_command);
            commands.push(request.command(&self.settings.names));
        }
        // One script for many completions costs the server half as much as a script for each. In a cluster, a script
        // may have one key only.
        let together = if is_cluster { 1 } else { completions.len().max(1) };
        commands.extend(completions.chunks(together).map(|completions| {
            let requests: Vec<&RedisRequest> =
                completions.iter().map(|at| &requests[*at].request).collect();
            RedisRequest::complete_command(&requests, &self.settings.names)
        }));
        let reads_time = self.settings.clock.is_stale();
        if reads_time {
            commands.push(cmd("TIME"));
        }
        let sent_at = Instant::now();
        let mut replies = self.connection.send(commands, timeout).await?;
        let mut trip = TripReplies::new(self.settings);
        for (index, (at, has_index_command)) in unanswered.iter().zip(has_index_command).enumerate()
        {
            let index_reply = match has_index_command {
                true => replies.next(),
                false if refusals.is_empty() => None,
                false => refusals.remove(&index),
            };
            let reply = replies.next().unwrap_or(Err(CommandError::UnexpectedReply));
            let reply = match index_reply {
                Some(index_reply) => after_index_add(index_reply, reply),
                None => reply,
            };
            trip.accept(requests, *at, reply);
        }
        for completions in completions.chunks(together) {
            let reply = replies.next().unwrap_or(Err(CommandError::UnexpectedReply));
            for (at, reply) in completions.iter().zip(split_array(reply, completions.len())) {
                trip.accept(requests, *at, reply);
            }
        }
        if reads_time {
            trip.read_time(replies.next());
        }
        if trip.is_mixed_up {
            trip.reject_all(requests, unanswered.iter().chain(&completions));
        }
        if let Some(server_time) = trip.server_time {
            self.settings.clock.set(server_time, sent_at);
        }
        trip.connection_error.map_or(Ok(()), Err)
    }

    fn index_command(&self, request: &RedisRequest, now: Timestamp) -> Option<Cmd> {
        let (mut add, at) = match request.index_add(now)? {
            IndexAdd::Held(at) => {
                let mut add = cmd("ZADD");
                add.arg(&self.settings.names.held);
                (add, at)
            }
            // With its text: this is rare, and the server need not have the script in its cache.
            IndexAdd::Stuck(at) => {
                (ADD_STUCK.call(self.settings.names.stuck.as_bytes(), ScriptCall::InFull), at)
            }
        };
        add.arg(check_score(at)).arg(&request.key().as_bytes()[..]);
        Some(add)
    }

    /// The servers of a cluster execute commands in no common order, so there the index is written in a trip before.
    async fn add_to_indexes_first(
        &mut self,
        requests: &[PendingRequest],
        unanswered: &[usize],
        now: Timestamp,
        timeout: Duration,
    ) -> Result<HashMap<usize, CommandReply>> {
        let adds = unanswered.iter().enumerate();
        let adds = adds.filter_map(|(index, at)| {
            Some((index, self.index_command(&requests[*at].request, now)?))
        });
        let (indexes, commands): (Vec<_>, Vec<_>) = adds.unzip();
        let replies = self.connection.send(commands, timeout).await?;
        Ok(indexes.into_iter().zip(replies).filter(|(_, reply)| reply.is_err()).collect())
    }
}

/// Reads the replies of one trip.
struct TripReplies<'a> {
    settings: &'a RedisSettings,
    now: Timestamp,
    /// The server's time, once a reply contained it.
    server_time: Option<Timestamp>,
    /// Keys that a request of this trip is about to change. Later requests of the same key, whose replies show the
    /// record before that change, read again.
    changing: HashSet<KeyHash, BuildPrefixHasher>,
    /// Why the connection cannot be used any more.
    connection_error: Option<Error>,
    is_mixed_up: bool,
    /// Requests that got the reply of another command.
    wrong_replies: Vec<(usize, Error)>,
}

impl<'a> TripReplies<'a> {
    fn new(settings: &'a RedisSettings) -> Self {
        Self {
            settings,
            now: settings.clock.now(),
            server_time: None,
            changing: HashSet::default(),
            connection_error: None,
            is_mixed_up: false,
            wrong_replies: Vec::new(),
        }
    }

    fn accept(&mut self, requests: &mut [PendingRequest], at: usize, reply: CommandReply) {
        let pending = &mut requests[at];
        match pending.request.accept(reply, self.now, &mut self.server_time, &self.settings.claims)
        {
            RequestProgress::Done(answer) => pending.reply = Some(answer),
            RequestProgress::DoneByReading(_) if self.changing.contains(pending.request.key()) => {}
            RequestProgress::DoneByReading(reply) => pending.reply = Some(Ok(reply)),
            RequestProgress::Continue if pending.request.is_about_to_write() => {
                self.changing.insert(*pending.request.key());
            }
            RequestProgress::Continue => {}
            RequestProgress::ConnectionLost(error) => {
                pending.reply = Some(Err(error.clone()));
                self.connection_error = Some(error);
            }
            RequestProgress::WrongReply(error) => {
                self.is_mixed_up = true;
                self.wrong_replies.push((at, error));
            }
        }
    }

    fn read_time(&mut self, reply: Option<CommandReply>) {
        let Some(Ok(time)) = reply else { return };
        match time_of(&time) {
            Ok(time) => self.server_time = Some(time),
            Err(_) => self.is_mixed_up = true,
        }
    }

    /// Rejects all replies of the trip. If one reply belongs to another command, the others may too: most of them do
    /// not name their key. Requests with a wrong reply fail with its error; the others may be tried again.
    #[cold]
    fn reject_all<'t>(
        &mut self,
        requests: &mut [PendingRequest],
        trip: impl Iterator<Item = &'t usize>,
    ) {
        for at in trip {
            requests[*at].request.forget(&self.settings.claims);
            requests[*at].reply = Some(Err(mixed_up_replies()));
        }
        for (at, error) in self.wrong_replies.drain(..) {
            requests[at].reply = Some(Err(error));
        }
        (self.server_time, self.connection_error) = (None, Some(mixed_up_replies()));
    }
}

/// The reply of a command whose index entry was added before it. If the entry may be missing, the request fails, though
/// its record may have been written.
fn after_index_add(index_reply: CommandReply, reply: CommandReply) -> CommandReply {
    match (index_reply, reply) {
        (Err(CommandError::Command(error)), Ok(_)) => {
            Err(CommandError::Command(unavailable(error.to_string())))
        }
        (Err(trouble @ (CommandError::Connection(_) | CommandError::UnexpectedReply)), _) => {
            Err(trouble)
        }
        (Ok(added), _) if !matches!(added, Value::Int(_)) => Err(CommandError::UnexpectedReply),
        (_, reply) => reply,
    }
}

/// Leaves out claims that would overtake earlier ones. A claim that renews its own lease needs fewer trips than an
/// earlier claim of the same key that puts the key on hold, so it waits for the reply of that one.
fn next_in_order(requests: &[PendingRequest], unanswered: &[usize]) -> Vec<usize> {
    let mut earlier: HashSet<KeyHash, BuildPrefixHasher> = HashSet::default();
    let mut next = unanswered.to_vec();
    next.retain(|at| {
        let request = &requests[*at].request;
        earlier.insert(*request.key()) || !request.is_lease_renewing_claim()
    });
    next
}

/// Groups the requests without a reply into trips, so that requests of one key are executed in their order, and large
/// outcomes go in several trips. Claims of one key go together: the server executes them in this order too, and only
/// one of them can change the record at once.
fn trip_groups(requests: &[PendingRequest]) -> Vec<Vec<usize>> {
    let mut rest = (0..requests.len()).collect::<Vec<_>>();
    rest.retain(|at| requests[*at].reply.is_none());
    if rest.iter().all(|at| requests[*at].request.is_claim()) {
        return vec![rest];
    }
    let mut trip_groups = Vec::new();
    while !rest.is_empty() {
        let mut claims_only: HashMap<KeyHash, bool, BuildPrefixHasher> = HashMap::default();
        let (mut group, mut later, mut bytes) = (Vec::with_capacity(rest.len()), Vec::new(), 0);
        for at in rest {
            let request = &requests[at].request;
            let fits = match claims_only.get(request.key()) {
                None => bytes < TRIP_BYTES,
                Some(only) => *only && request.is_claim(),
            };
            claims_only.insert(*request.key(), fits && request.is_claim());
            if fits {
                bytes += request.outcome_bytes();
                group.push(at);
            } else {
                later.push(at);
            }
        }
        trip_groups.push(group);
        rest = later;
    }
    trip_groups
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use semel_core::{
        ClaimRequest, CompleteRequest, Decision, ErrorKind, Fingerprint, Nonce, OnLostOwner,
        Outcome, Owner, ResolveRequest, Span, Terms, steps::StoreRequest,
    };

    use super::*;
    use crate::{RedisStore, meta::RedisRole, remembered_claims::RememberedClaims};

    fn completion(key: u8, bytes: usize) -> PendingRequest {
        let owner = Owner { key: KeyHash::from_bytes([key; 32]), nonce: Nonce::random(), token: 1 };
        let outcome = Arc::new(Outcome::success(vec![0; bytes]));
        pending(StoreRequest::Complete(CompleteRequest { owner, outcome }))
    }

    fn decision(key: u8, bytes: usize) -> PendingRequest {
        let decision = Decision::Complete(Arc::new(Outcome::success(vec![0; bytes])));
        let key = KeyHash::from_bytes([key; 32]);
        pending(StoreRequest::Resolve(ResolveRequest {
            key,
            seen_nonce: None,
            seen_token: 1,
            decision,
        }))
    }

    fn pending(call: StoreRequest) -> PendingRequest {
        PendingRequest {
            request: RedisRequest::new(call, Timestamp::default(), &RememberedClaims::new()),
            reply: None,
        }
    }

    #[test]
    fn requests_of_one_key_are_sent_in_their_order() {
        let requests = [1, 2, 1, 3, 1].map(|key| completion(key, 1));
        assert_eq!(trip_groups(&requests), [vec![0, 1, 3], vec![2], vec![4]]);
    }

    #[test]
    fn a_request_that_has_a_reply_is_not_sent_again() {
        let mut requests = [1, 2, 1].map(|key| completion(key, 1));
        requests[0].reply = Some(Err(mixed_up_replies()));
        assert_eq!(trip_groups(&requests), [vec![1, 2]]);
        let claims = [claim(1), claim(2)].map(StoreRequest::Claim).map(pending);
        let mut requests: Vec<_> = claims.into_iter().chain([completion(3, 1)]).collect();
        requests[2].reply = Some(Err(mixed_up_replies()));
        assert_eq!(trip_groups(&requests), [vec![0, 1]]);
    }

    #[test]
    fn large_outcomes_go_in_several_trips() {
        let requests = [(1, TRIP_BYTES), (2, 1), (1, 1), (2, 1)];
        let requests = requests.map(|(key, bytes)| completion(key, bytes));
        assert_eq!(trip_groups(&requests), [vec![0], vec![1, 2], vec![3]]);
        let requests = [decision(1, TRIP_BYTES), completion(2, 1)];
        assert_eq!(trip_groups(&requests), [vec![0], vec![1]]);
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

    fn is_remembered(settings: &RedisSettings, claim: &ClaimRequest) -> bool {
        let owner = Owner { key: claim.key, nonce: claim.nonce, token: 1 };
        let outcome = Arc::new(Outcome::success("x"));
        settings
            .claims
            .completion(&CompleteRequest { owner, outcome }, Timestamp::default())
            .is_some()
    }

    /// Serves two claims with these replies, and a time.
    fn served(
        replies: [Value; 2],
        time: Value,
    ) -> (RedisSettings, [ClaimRequest; 2], Vec<PendingRequest>) {
        let settings = RedisStore::builder("redis://localhost")
            .settings(RedisRole::Store)
            .expect("the settings are right");
        let claims = [claim(1), claim(2)];
        let mut requests: Vec<_> =
            claims.iter().cloned().map(StoreRequest::Claim).map(pending).collect();
        let mut trip = TripReplies::new(&settings);
        for (at, reply) in replies.into_iter().enumerate() {
            trip.accept(&mut requests, at, Ok(reply));
        }
        trip.read_time(Some(Ok(time)));
        if trip.is_mixed_up {
            trip.reject_all(&mut requests, [0, 1].iter());
            assert_eq!(trip.connection_error.expect("it is lost").kind(), ErrorKind::Unavailable);
            assert_eq!(trip.server_time, None);
        }
        (settings, claims, requests)
    }

    fn seconds() -> Value {
        Value::Array([b"1", b"0"].map(|part| Value::BulkString(part.to_vec())).into())
    }

    #[test]
    fn replies_in_the_right_shape_are_accepted() {
        let (settings, claims, requests) = served([Value::Nil, Value::Nil], seconds());
        assert!(requests.iter().all(|pending| matches!(pending.reply, Some(Ok(_)))));
        assert!(claims.iter().all(|claim| is_remembered(&settings, claim)));
    }

    #[test]
    fn one_wrong_reply_rejects_all_replies_of_its_trip() {
        for (replies, time) in
            [([Value::Nil, Value::Okay], seconds()), ([Value::Nil, Value::Nil], Value::Okay)]
        {
            let (settings, claims, requests) = served(replies, time);
            for (pending, claim) in requests.iter().zip(&claims) {
                let Some(Err(error)) = &pending.reply else { panic!("{:?}", pending.reply) };
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(!is_remembered(&settings, claim));
            }
        }
    }
}
