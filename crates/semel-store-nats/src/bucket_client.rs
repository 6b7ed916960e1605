//! The way to the bucket: requests, each with an answer or a [`Trouble`], over the connection of the runtime that asks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{Client, HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::FutureExt;
use semel_core::{Result, Timestamp};
use semel_remote::{RuntimeConnection as _, RuntimeConnections, timeout_with_grace};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

use crate::{
    capacity::{Room, Taken},
    clock::ServerClock,
    connection::{Connection, Losses},
    error::{NO_MESSAGE, NO_STREAM, Trouble, gave_up, odd_reply, timed_out, unserved},
    jetstream_api::{Config, GetLast, Got, Info, ListSubjects, Message, Reply, Stored},
    names::Names,
    pipeline::{Ask, Request},
    runtime_connections::{self, Lane},
    settings::Plan,
    subject_pages::Pages,
    value::Encoded,
};

const EXPECTED: HeaderName = HeaderName::from_static("Nats-Expected-Last-Subject-Sequence");
const TTL: HeaderName = HeaderName::from_static("Nats-TTL");

/// Connections, each on a runtime that calls, and one on semel's own for all others.
#[derive(Debug)]
pub(crate) struct Link {
    lanes: RuntimeConnections<Lane>,
    own: Arc<Connection>,
    pub(crate) names: Names,
    clock: ServerClock,
    pub(crate) room: Room,
    pub(crate) call_timeout: Duration,
    pub(crate) losses: Losses,
    /// The bucket takes per-key TTL.
    has_ttl: bool,
}

/// Which connection a request goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// That of the runtime that asks.
    Callers,
    /// Semel's own, if it is up.
    Own,
}

/// What is to stand under a subject.
#[derive(Debug)]
pub(crate) enum Put<'a> {
    Value(&'a Encoded),
    /// A marker that says that there is nothing, and by which its writer knows it.
    Gone(Bytes),
    /// The same in the index, where it does no harm if a crash undoes it.
    Unwatched,
}

impl Link {
    /// Connects. Runs on semel's own runtime.
    pub(crate) async fn open(plan: &Arc<Plan>) -> Result<Self> {
        let ((own_lane, own), plan) = (runtime_connections::open(plan).await?, plan.clone());
        let (names, call_timeout) = (plan.names.clone(), plan.call_timeout);
        let losses = plan.losses.clone();
        // A server without it is refused, unless the plan is for one: then the bucket is made without it too.
        let has_ttl = plan.old_server.is_none();
        let lanes = RuntimeConnections::new(own_lane, move |runtime| {
            runtime_connections::begin(&plan, runtime)
        });
        let (clock, room) = (ServerClock::new(), Room::new());
        Ok(Self { lanes, own, names, clock, room, call_timeout, losses, has_ttl })
    }

    /// The client on semel's own runtime.
    pub(crate) fn client(&self) -> &Client {
        &self.own.client
    }

    /// Stores a message if the subject's last one is still `expected`, and says its revision. Without
    /// `expected` it is stored in any case.
    pub(crate) fn put(
        &self,
        subject: String,
        expected: Option<u64>,
        put: Put<'_>,
        over: Over,
    ) -> impl Future<Output = Result<u64, Trouble>> + use<> {
        let stored = self.ask::<Stored>(self.putting(subject, expected, put), over);
        stored.map(|stored| Ok(stored?.seq))
    }

    fn putting(&self, subject: String, expected: Option<u64>, put: Put<'_>) -> Request {
        let mut headers = HeaderMap::new();
        if let Some(expected) = expected {
            headers.insert(EXPECTED, HeaderValue::from(expected));
        }
        let (payload, ttl) = match put {
            Put::Value(Encoded { bytes, ttl }) => (bytes.clone(), *ttl),
            Put::Gone(mark) => {
                headers.insert("KV-Operation", "DEL");
                (mark, Some(MARKER_SECONDS))
            }
            Put::Unwatched => {
                headers.insert("KV-Operation", "DEL");
                (Bytes::new(), Some(UNWATCHED_SECONDS))
            }
        };
        if let Some(seconds) = ttl.filter(|_| self.has_ttl) {
            headers.insert(TTL, format!("{seconds}s"));
        }
        Request { subject, headers, payload }
    }

    /// The last message of a subject, as the leader has it.
    pub(crate) async fn last(&self, subject: &str, over: Over) -> Result<Option<Message>, Trouble> {
        let api = format!("$JS.API.STREAM.MSG.GET.{}", self.names.stream);
        let request = asking(api, &GetLast { last_by_subj: subject })?;
        let reply: Reply<Got> = self.request(request, over).await?;
        match reply {
            Reply::Error(error) if error.err_code == NO_MESSAGE => Ok(None),
            reply => reply.into_answer()?.message.read().map(Some).map_err(Trouble::Lost),
        }
    }

    /// What the stream says about itself, if there is one. Sets the clock, and tells of the room.
    pub(crate) async fn info(&self) -> Result<Option<Info>, Trouble> {
        let (subject, headers, payload) = (self.info_subject(), HeaderMap::new(), Bytes::new());
        let request = Request { subject, headers, payload };
        let (asked_at, taken) = (Instant::now(), self.room.taken());
        let reply: Reply<Info> = self.request(request, Over::Own).await?;
        match reply {
            Reply::Error(error) if error.err_code == NO_STREAM => Ok(None),
            reply => reply.into_answer().map(|info| Some(self.heard(info, asked_at, taken))),
        }
    }

    fn heard(&self, info: Info, asked_at: Instant, taken: Taken) -> Info {
        if let Some(now) = info.now() {
            self.clock.tell(now, asked_at.elapsed());
        }
        self.room.tell(&info, taken);
        info
    }

    pub(crate) async fn create(&self, config: &Config) -> Result<Info, Trouble> {
        let api = format!("$JS.API.STREAM.CREATE.{}", self.names.stream);
        let (asked_at, taken) = (Instant::now(), self.room.taken());
        let info = self.ask(asking(api, config)?, Over::Own).await?;
        Ok(self.heard(info, asked_at, taken))
    }

    /// All subjects that match, in their order.
    pub(crate) async fn subjects(&self, filter: &str) -> Result<Vec<String>, Trouble> {
        let mut pages = Pages::of(SUBJECTS_PAGE);
        loop {
            let page = ListSubjects { subjects_filter: filter, offset: pages.offset() };
            let info: Info = self.ask(asking(self.info_subject(), &page)?, Over::Own).await?;
            if pages.add(info.state.subjects.unwrap_or_default().into_keys().collect()) {
                return Ok(pages.into_names());
            }
        }
    }

    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        request: Request,
        over: Over,
    ) -> impl Future<Output = Result<T, Trouble>> + use<T> {
        self.request::<T>(request, over).map(|reply| reply?.into_answer())
    }

    /// Queues a request at once: nobody carries it along who waits for its reply.
    fn request<T: DeserializeOwned>(
        &self,
        what: Request,
        over: Over,
    ) -> impl Future<Output = Result<Reply<T>, Trouble>> + use<T> {
        let (patience, bytes) = (self.patience(), what.payload.len());
        let (told, answer) = oneshot::channel();
        let ask = Ask { what, until: Instant::now() + patience, told };
        let taken = self.lane(over).call(ask, bytes);
        timeout_with_grace(patience, answer).then(async move |answer| match answer {
            Some(Ok(told)) => Reply::of(&told?),
            // Nobody took it, or who did is gone.
            Some(Err(_)) => Err(taken.await.map_or_else(unserved, |()| Trouble::Lost(gave_up()))),
            None => Err(Trouble::Lost(timed_out())),
        })
    }

    fn lane(&self, over: Over) -> Arc<Lane> {
        match over {
            Over::Own if self.own.is_up() => self.lanes.background(),
            Over::Own | Over::Callers => self.lanes.current(),
        }
    }

    /// A reply that takes longer is looked for elsewhere, while the call itself still waits.
    fn patience(&self) -> Duration {
        self.call_timeout / 2
    }

    /// True when there has been no connection for a while.
    pub(crate) fn is_down(&self) -> bool {
        self.own.is_down() && !self.lanes.current().is_ready()
    }

    /// The leader's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn info_subject(&self) -> String {
        format!("$JS.API.STREAM.INFO.{}", self.names.stream)
    }
}

/// The server names so many subjects at once.
const SUBJECTS_PAGE: usize = 100_000;
/// How long a marker of a deletion is kept: longer than the server takes to sync. If it were gone before
/// that, a crash could bring back what it stands over.
const MARKER_SECONDS: u64 = 3600;
const UNWATCHED_SECONDS: u64 = 60;

/// A request to JetStream's API.
pub(crate) fn asking(subject: String, body: &impl Serialize) -> Result<Request, Trouble> {
    let body = serde_json::to_vec(body).map_err(|_| Trouble::Refused(odd_reply()))?;
    Ok(Request { subject, headers: HeaderMap::new(), payload: body.into() })
}
