//! Requests messages, at most one request at a time.
//!
//! A request asks for no more messages than the caller takes, and ends as soon as the stream has no more: nothing waits
//! in hidden buffers while its deadline runs. If the caller goes away, its request and what it brings stay for the next
//! one; `receiver.rs` withdraws them if there is none.

mod status;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use async_nats::{Client, Message, Subscriber};
use futures_util::{FutureExt, StreamExt};
use semel_core::{Error, Result};
use tokio::time::{sleep, timeout};

use self::status::{Status, status_of};
use crate::{
    connection::{connects, is_connected},
    error,
    jetstream::{CALL_TIMEOUT, ConsumerConfig, JetStream, PullRequest},
};

/// How long a request waits for the first message.
const EXPIRES: Duration = Duration::from_secs(30);
/// How often the server says that a request still waits.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a waiting caller looks at the connection.
const TICK: Duration = Duration::from_millis(500);
/// How long a loss of the connection is waited out before the caller gets an error.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait for the next message of a batch. The server keeps a request open while too many messages are
/// unacknowledged; the next call then goes on with it.
const NEXT_MESSAGE: Duration = Duration::from_millis(2);
/// The least time between requests that the server ends at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Requests the messages of one consumer.
pub(crate) struct Puller {
    jetstream: JetStream,
    stream: String,
    consumer: String,
    max_batch: usize,
    expires: Duration,
    inbox: Option<Inbox>,
    request: Option<Outstanding>,
    received: VecDeque<Message>,
    disconnected_since: Option<Instant>,
    /// When that request was sent which the server has just ended.
    ended_sent_at: Option<Instant>,
    /// Why the last request failed, until a caller gets the error.
    failure: Option<Failure>,
    /// The next request waits for one message only: other requests wait for more messages than there are, and the
    /// server refuses a further one that would end with the stream.
    wait_for_one: bool,
}

enum Failure {
    /// Nothing answers requests for this consumer.
    NoConsumer,
    Refused(Error),
}

/// Where the server sends messages to.
struct Inbox {
    subject: String,
    subscriber: Subscriber,
    /// The connection that the request was sent on.
    connects: u64,
}

impl Inbox {
    async fn open(client: &Client) -> Result<Self> {
        let (subject, connects) = (client.new_inbox(), connects(client));
        // The driver takes nothing while it waits for a server that hangs.
        let subscriber = timeout(CALL_TIMEOUT, client.subscribe(subject.clone())).await;
        let subscriber = subscriber.map_err(|_| error::timed_out())?;
        let subscriber = subscriber.map_err(|error| error::connection_lost().with_source(error))?;
        Ok(Self { subject, subscriber, connects })
    }
}

/// A request that the server has not ended yet.
struct Outstanding {
    remaining: usize,
    sent_at: Instant,
    /// When the server last sent a message or a heartbeat.
    last_received_at: Instant,
}

impl Puller {
    pub(crate) fn new(
        jetstream: JetStream,
        (stream, consumer): (&str, &str),
        config: &ConsumerConfig,
    ) -> Self {
        let limit = Duration::from_nanos(config.max_expires);
        // A request for more than the server lets be unacknowledged would not end with its batch.
        let limits = [config.max_batch, config.max_ack_pending].into_iter();
        let limits =
            limits.filter_map(|limit| usize::try_from(limit).ok().filter(|limit| *limit > 0));
        Self {
            jetstream,
            stream: stream.to_owned(),
            consumer: consumer.to_owned(),
            max_batch: limits.min().unwrap_or(usize::MAX),
            expires: if limit.is_zero() { EXPIRES } else { EXPIRES.min(limit) },
            inbox: None,
            request: None,
            received: VecDeque::new(),
            disconnected_since: None,
            ended_sent_at: None,
            failure: None,
            wait_for_one: false,
        }
    }

    /// Waits for messages, and returns one to `max` of them. The future can be dropped.
    pub(crate) async fn next(&mut self, max: usize) -> Result<Vec<Message>> {
        loop {
            self.take_ready();
            if !self.received.is_empty() {
                break;
            }
            if let Some(failure) = self.failure.take() {
                return Err(self.explain(failure).await);
            }
            if !self.is_usable()? {
                sleep(PAUSE).await;
                continue;
            }
            if self.request.is_none() {
                self.send_request(max).await?;
            }
            self.wait(TICK).await;
            self.pause_after_an_empty_reply().await;
        }
        while self.received.len() < max && self.request.is_some() {
            if !self.wait(NEXT_MESSAGE).await {
                break;
            }
        }
        let count = self.received.len().min(max);
        Ok(self.received.drain(..count).collect())
    }

    /// Withdraws the request, and returns all messages that were received and not returned.
    pub(crate) async fn close(&mut self) -> Vec<Message> {
        if let Some(mut inbox) = self.inbox.take()
            && is_connected(&self.jetstream.client)
            && inbox.subscriber.drain().await.is_ok()
        {
            // Ends once the server has confirmed that it sends no more.
            while let Ok(Some(message)) = timeout(GRACE, inbox.subscriber.next()).await {
                if status_of(&message).is_none() {
                    self.received.push_back(message);
                }
            }
        }
        self.request = None;
        self.received.drain(..).collect()
    }

    /// True if a request can be sent, or one waits. After a reconnect it is not known what became of the request.
    fn is_usable(&mut self) -> Result<bool> {
        let client = &self.jetstream.client;
        if !is_connected(client) {
            let since = *self.disconnected_since.get_or_insert_with(Instant::now);
            return if since.elapsed() > GRACE { Err(error::connection_lost()) } else { Ok(false) };
        }
        self.disconnected_since = None;
        let connects = connects(client);
        if self.inbox.as_ref().is_some_and(|inbox| inbox.connects != connects) {
            self.abandon_request();
        }
        if self
            .request
            .as_ref()
            .is_some_and(|request| request.last_received_at.elapsed() > 2 * self.heartbeat() + TICK)
        {
            self.abandon_request();
            return Err(error::unavailable(
                "nats: the server does not send heartbeats any more; messages will be requested again",
            ));
        }
        Ok(true)
    }

    fn heartbeat(&self) -> Duration {
        // The server refuses heartbeats that are longer than half of the wait.
        HEARTBEAT.min(self.expires / 2)
    }

    /// Without interest in its inbox, the server drops the request.
    fn abandon_request(&mut self) {
        self.request = None;
        self.inbox = None;
    }

    async fn send_request(&mut self, max: usize) -> Result<()> {
        let inbox = match self.inbox.take() {
            Some(inbox) => inbox,
            None => Inbox::open(&self.jetstream.client).await?,
        };
        let reply = inbox.subject.clone();
        self.inbox = Some(inbox);
        let batch = if self.wait_for_one { 1 } else { max.clamp(1, self.max_batch) };
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let request = PullRequest {
            batch,
            no_wait: !self.wait_for_one,
            expires: nanos(self.expires),
            idle_heartbeat: nanos(self.heartbeat()),
        };
        let body = serde_json::to_vec(&request).map_err(|_| error::unexpected_reply())?;
        let subject = self.jetstream.next_message_subject(&self.stream, &self.consumer);
        let sending = self.jetstream.client.publish_with_reply(subject, reply, body.into());
        let sent = timeout(CALL_TIMEOUT, sending).await.map_err(|_| error::timed_out())?;
        sent.map_err(error::not_published)?;
        // No await after the publish: a dropped future either sent nothing or leaves the request here.
        self.wait_for_one = false;
        let now = Instant::now();
        self.request = Some(Outstanding { remaining: batch, sent_at: now, last_received_at: now });
        Ok(())
    }

    /// Takes what has arrived.
    fn take_ready(&mut self) {
        while let Some(message) =
            self.inbox.as_mut().and_then(|it| it.subscriber.next().now_or_never())
        {
            if !self.on_message(message) {
                return;
            }
        }
    }

    /// Waits for the next message of the server, and takes it. False if none came in this time.
    async fn wait(&mut self, patience: Duration) -> bool {
        let Some(inbox) = &mut self.inbox else { return false };
        let Ok(message) = timeout(patience, inbox.subscriber.next()).await else { return false };
        self.on_message(message)
    }

    /// Takes a message of the server. False if there will be no more.
    fn on_message(&mut self, message: Option<Message>) -> bool {
        let Some(message) = message else {
            self.abandon_request();
            self.failure = Some(Failure::Refused(error::closed()));
            return false;
        };
        let status = status_of(&message);
        if let Some(request) = &mut self.request {
            request.last_received_at = Instant::now();
        }
        match status {
            None => {
                self.received.push_back(message);
                if let Some(request) = &mut self.request {
                    request.remaining = request.remaining.saturating_sub(1);
                }
                self.request.take_if(|request| request.remaining == 0);
                self.ended_sent_at = None;
            }
            Some(Status::Heartbeat) => {}
            Some(ended) => {
                self.ended_sent_at = self.request.take().map(|request| request.sent_at);
                self.on_end(ended);
            }
        }
        true
    }

    /// The server has ended the request.
    fn on_end(&mut self, status: Status) {
        match status {
            Status::Heartbeat | Status::Ended => {}
            Status::RequestsPending => self.wait_for_one = true,
            Status::NoConsumer => self.failure = Some(Failure::NoConsumer),
            Status::Refused(error) => self.failure = Some(Failure::Refused(error)),
        }
    }

    /// Requests that the server ends at once are not repeated at once.
    async fn pause_after_an_empty_reply(&mut self) {
        if let Some(sent_at) = self.ended_sent_at
            && self.received.is_empty()
        {
            sleep(PAUSE.saturating_sub(sent_at.elapsed())).await;
        }
        self.ended_sent_at = None;
    }

    async fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::Refused(error) => error,
            Failure::NoConsumer => {
                match self.jetstream.consumer_info(&self.stream, &self.consumer).await {
                    Err(error) => error,
                    Ok(None) => error::no_consumer(&self.stream, &self.consumer),
                    Ok(Some(_)) => error::no_responders(),
                }
            }
        }
    }
}
