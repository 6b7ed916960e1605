//! The connection: requests, each with an answer or a [`Trouble`], many of them in flight.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{Client, ConnectOptions, Event, HeaderMap, HeaderName, HeaderValue, Request};
use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{Result, Timestamp};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

use crate::{
    api::{Config, GetLast, Got, Info, ListSubjects, Message, Reply, Stored},
    clock::ServerClock,
    error::{Trouble, disconnected, failed, odd_reply, timed_out, unavailable},
    names::Names,
    plan::Plan,
    value::Encoded,
};

/// Calls wait this long for a connection that is being opened; then they fail until it is there.
const GRACE: Duration = Duration::from_secs(1);
/// A server that is gone without a word is noticed after a few of these.
const PING: Duration = Duration::from_secs(3);
const EXPECTED: HeaderName = HeaderName::from_static("Nats-Expected-Last-Subject-Sequence");
const TTL: HeaderName = HeaderName::from_static("Nats-TTL");
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection to one server of many. It comes back by itself.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) names: Names,
    pub(crate) clock: ServerClock,
    pub(crate) call_timeout: Duration,
    /// The server knows per-key TTL.
    pub(crate) has_ttl: bool,
    health: Arc<Health>,
}

#[derive(Debug)]
struct Health {
    down_since: Mutex<Option<Instant>>,
    /// Told whenever the connection is lost, and with it every reply that is still to come.
    lost: watch::Sender<()>,
}

/// What is to stand under a subject.
#[derive(Debug)]
pub(crate) enum Put<'a> {
    Value(&'a Encoded),
    /// A marker that says that there is nothing.
    Gone,
}

impl Link {
    pub(crate) async fn open(plan: &Plan) -> Result<Self> {
        let health =
            Arc::new(Health { down_since: Mutex::default(), lost: watch::Sender::new(()) });
        let (servers, options) = (plan.target.servers()?, plan.target.options()?);
        let options = watched(options, health.clone())
            .connection_timeout(plan.call_timeout)
            .request_timeout(None)
            .ping_interval(PING)
            .client_capacity(CAPACITY)
            .subscription_capacity(SUBSCRIBED)
            .reconnect_delay_callback(pause)
            .name("semel");
        let connecting = tokio::time::timeout(plan.call_timeout, options.connect(servers));
        let client = connecting.await.map_err(|_| timed_out())?.map_err(unreachable)?;
        let has_ttl = client.is_server_compatible(2, 11, 0);
        Ok(Self {
            client,
            names: plan.names.clone(),
            clock: ServerClock::new(),
            call_timeout: plan.call_timeout,
            has_ttl,
            health,
        })
    }

    /// Stores a message if the subject's last one is still `expected`, and says its revision. Without
    /// `expected` it is stored in any case.
    pub(crate) async fn put(
        &self,
        subject: String,
        expected: Option<u64>,
        put: Put<'_>,
    ) -> Result<u64, Trouble> {
        let mut headers = HeaderMap::new();
        if let Some(expected) = expected {
            headers.insert(EXPECTED, HeaderValue::from(expected));
        }
        let (payload, ttl) = match put {
            Put::Value(Encoded { bytes, ttl }) => (bytes.clone(), *ttl),
            Put::Gone => {
                headers.insert("KV-Operation", "DEL");
                (Bytes::new(), Some(MARKER_SECONDS))
            }
        };
        if let Some(seconds) = ttl.filter(|_| self.has_ttl) {
            headers.insert(TTL, format!("{seconds}s"));
        }
        let request = Request::new().headers(headers).payload(payload);
        let stored: Stored = self.ask(subject, request).await?;
        Ok(stored.seq)
    }

    /// The last message of a subject, as the leader has it.
    pub(crate) async fn last(&self, subject: &str) -> Result<Option<Message>, Trouble> {
        const NO_MESSAGE: u16 = 404;
        let request = body(&GetLast { last_by_subj: subject })?;
        let api = format!("$JS.API.STREAM.MSG.GET.{}", self.names.stream);
        let reply: Reply<Got> = self.request(api, request).await?;
        match reply {
            Reply::Error(error) if error.code == NO_MESSAGE => Ok(None),
            reply => reply.into_answer()?.message.read().map(Some).map_err(Trouble::Lost),
        }
    }

    /// What the stream says about itself, if there is one. Sets the clock.
    pub(crate) async fn info(&self) -> Result<Option<Info>, Trouble> {
        const NO_STREAM: u16 = 10_059;
        let reply: Reply<Info> = self.request(self.info_subject(), Request::new()).await?;
        match reply {
            Reply::Error(error) if error.err_code == NO_STREAM => Ok(None),
            reply => {
                let info = reply.into_answer()?;
                if let Some(now) = info.now() {
                    self.clock.tell(now);
                }
                Ok(Some(info))
            }
        }
    }

    pub(crate) async fn create(&self, config: &Config) -> Result<Info, Trouble> {
        let api = format!("$JS.API.STREAM.CREATE.{}", self.names.stream);
        self.ask(api, body(config)?).await
    }

    /// All subjects that match, in their order.
    pub(crate) async fn subjects(&self, filter: &str) -> Result<Vec<String>, Trouble> {
        let mut subjects = Vec::new();
        loop {
            let page = ListSubjects { subjects_filter: filter, offset: subjects.len() };
            let info: Info = self.ask(self.info_subject(), body(&page)?).await?;
            let page = info.state.subjects.unwrap_or_default();
            if page.is_empty() {
                subjects.sort_unstable();
                subjects.dedup();
                return Ok(subjects);
            }
            let is_last = page.len() < SUBJECTS_PAGE;
            subjects.extend(page.into_keys());
            if is_last {
                subjects.sort_unstable();
                return Ok(subjects);
            }
        }
    }

    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        subject: String,
        request: Request,
    ) -> Result<T, Trouble> {
        self.request::<T>(subject, request).await?.into_answer()
    }

    async fn request<T: DeserializeOwned>(
        &self,
        subject: String,
        request: Request,
    ) -> Result<Reply<T>, Trouble> {
        // Listens before it asks, lest the loss of the connection is missed.
        let mut lost = self.health.lost.subscribe();
        if self.is_down() {
            return Err(Trouble::Lost(disconnected()));
        }
        let request = request.timeout(Some(self.patience()));
        let reply = tokio::select! {
            reply = self.client.send_request(subject, request) => reply.map_err(failed)?,
            _ = lost.changed() => return Err(Trouble::Lost(disconnected())),
        };
        Reply::read(&reply.payload).map_err(|_| Trouble::Lost(odd_reply()))
    }

    /// A reply that takes longer is looked for elsewhere, while the call itself still waits.
    fn patience(&self) -> Duration {
        self.call_timeout / 2
    }

    /// True when there has been no connection for a while.
    pub(crate) fn is_down(&self) -> bool {
        self.health.down_since.lock().is_some_and(|since| since.elapsed() > GRACE)
    }

    /// The leader's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn info_subject(&self) -> String {
        format!("$JS.API.STREAM.INFO.{}", self.names.stream)
    }
}

/// Requests that wait for the connection to take them.
const CAPACITY: usize = 4096;
/// News that wait to be heard; of more, some are missed, which is noticed.
const SUBSCRIBED: usize = 65_536;
/// The server names so many subjects at once.
const SUBJECTS_PAGE: usize = 100_000;
/// How long a marker of a deletion is kept: longer than the server takes to sync. If it were gone before
/// that, a crash could bring back what it stands over.
const MARKER_SECONDS: u64 = 3600;

fn body(request: &impl Serialize) -> Result<Request, Trouble> {
    let body = serde_json::to_vec(request).map_err(|_| Trouble::Refused(odd_reply()))?;
    Ok(Request::new().payload(body.into()))
}

fn watched(options: ConnectOptions, health: Arc<Health>) -> ConnectOptions {
    options.event_callback(move |event| {
        match &event {
            Event::Connected => *health.down_since.lock() = None,
            Event::Disconnected | Event::Closed => {
                tracing::warn!("nats: connection lost");
                health.down_since.lock().get_or_insert_with(Instant::now);
                health.lost.send_replace(());
            }
            _ => tracing::debug!(%event, "nats"),
        }
        std::future::ready(())
    })
}

fn pause(attempts: usize) -> Duration {
    let doubled = FIRST_PAUSE * (1 << attempts.saturating_sub(1).min(6));
    doubled.min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..1.0))
}

fn unreachable(error: async_nats::ConnectError) -> semel_core::Error {
    use async_nats::ConnectErrorKind::{
        Authentication, AuthorizationViolation, Dns, Io, MaxReconnects, ServerParse, TimedOut, Tls,
    };
    match error.kind() {
        Authentication | AuthorizationViolation => unavailable(
            "nats: user or password is not accepted; put them into the URL as USER:PASSWORD@",
        ),
        Tls => unavailable(
            "nats: no TLS connection; use nats+tls:// and name the authority with ?ca=FILE",
        )
        .with_source(error),
        ServerParse | Dns | TimedOut | Io | MaxReconnects => {
            unavailable("nats: no server can be reached; check host and port").with_source(error)
        }
    }
}
