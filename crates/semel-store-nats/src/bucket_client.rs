//! The client of the bucket: requests to JetStream, over the connection of the caller's runtime or that of the
//! background runtime. Each ends with a reply or a [`RequestError`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{Client, HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::FutureExt;
use semel_core::{Result, Timestamp};
use semel_remote::{RenewalPace, RuntimeConnection as _, RuntimeConnections, timeout_with_grace};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

use crate::{
    capacity::{BucketCapacity, CapacityUsed},
    clock::NatsClock,
    connection::{LostConnections, NatsConnection},
    error::{
        NO_MESSAGE, NO_STREAM, RequestError, not_sent, sender_gone, timed_out, unexpected_reply,
    },
    jetstream_api::{
        ApiReply, GetLastMessage, GetLastReply, ListSubjects, PublishAck, StoredMessage,
        StreamConfig, StreamInfo,
    },
    names::NatsNames,
    pipeline::{OutgoingRequest, QueuedRequest},
    runtime_connections::{self, NatsRequestQueue},
    settings::NatsSettings,
    subject_pages::SubjectPages,
    value::Encoded,
};

const EXPECTED: HeaderName = HeaderName::from_static("Nats-Expected-Last-Subject-Sequence");
const TTL: HeaderName = HeaderName::from_static("Nats-TTL");

/// A connection for each runtime that calls often, and one on the background runtime for all others.
#[derive(Debug)]
pub(crate) struct BucketClient {
    connections: RuntimeConnections<NatsRequestQueue>,
    background: Arc<NatsConnection>,
    pub(crate) names: NatsNames,
    clock: NatsClock,
    pub(crate) capacity: BucketCapacity,
    pub(crate) call_timeout: Duration,
    pub(crate) pace: RenewalPace,
    pub(crate) lost_connections: LostConnections,
    /// The bucket accepts per-key TTL.
    has_ttl: bool,
}

/// Which connection a request goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// The connection of the caller's runtime.
    Caller,
    /// The connection of the background runtime, if it is connected.
    Background,
}

/// What is written to a subject.
#[derive(Debug)]
pub(crate) enum BucketWrite<'a> {
    Value(&'a Encoded),
    /// Marks a deleted key. The mark lets its writer recognise it.
    Tombstone(Bytes),
    /// Marks a deleted index entry. If a crash undoes the deletion, that does no harm.
    IndexTombstone,
}

impl BucketClient {
    /// Connects. Runs on the background runtime.
    pub(crate) async fn open(settings: &Arc<NatsSettings>) -> Result<Self> {
        let ((background_queue, background), settings) =
            (runtime_connections::open(settings).await?, settings.clone());
        let (names, call_timeout) = (settings.names.clone(), settings.call_timeout);
        let lost_connections = settings.lost_connections.clone();
        // A server without per-key TTL is refused, unless the settings allow it: then the bucket is made without it.
        let has_ttl = settings.old_server.is_none();
        let connections = RuntimeConnections::new(background_queue, move |runtime| {
            runtime_connections::open_in_background(&settings, runtime)
        });
        let (clock, capacity) = (NatsClock::new(), BucketCapacity::new());
        Ok(Self {
            connections,
            background,
            names,
            clock,
            capacity,
            call_timeout,
            pace: RenewalPace::default(),
            lost_connections,
            has_ttl,
        })
    }

    /// The driver's client on the background runtime.
    pub(crate) fn client(&self) -> &Client {
        &self.background.client
    }

    /// Stores a message if the subject still has the revision `expected`, and returns the new revision. Without
    /// `expected` it is stored in any case.
    pub(crate) fn put(
        &self,
        subject: String,
        expected: Option<u64>,
        write: BucketWrite<'_>,
        via: Via,
    ) -> impl Future<Output = Result<u64, RequestError>> + use<> {
        let ack = self.call::<PublishAck>(self.write_request(subject, expected, write), via);
        ack.map(|ack| Ok(ack?.seq))
    }

    fn write_request(
        &self,
        subject: String,
        expected: Option<u64>,
        write: BucketWrite<'_>,
    ) -> OutgoingRequest {
        let mut headers = HeaderMap::new();
        if let Some(expected) = expected {
            headers.insert(EXPECTED, HeaderValue::from(expected));
        }
        let (payload, ttl) = match write {
            BucketWrite::Value(Encoded { bytes, ttl }) => (bytes.clone(), *ttl),
            BucketWrite::Tombstone(mark) => {
                headers.insert("KV-Operation", "DEL");
                (mark, Some(TOMBSTONE_SECONDS))
            }
            BucketWrite::IndexTombstone => {
                headers.insert("KV-Operation", "DEL");
                (Bytes::new(), Some(INDEX_TOMBSTONE_SECONDS))
            }
        };
        if let Some(seconds) = ttl.filter(|_| self.has_ttl) {
            headers.insert(TTL, format!("{seconds}s"));
        }
        OutgoingRequest { subject, headers, payload }
    }

    /// The last message of a subject, as the leader has it.
    pub(crate) async fn last(
        &self,
        subject: &str,
        via: Via,
    ) -> Result<Option<StoredMessage>, RequestError> {
        let api = format!("$JS.API.STREAM.MSG.GET.{}", self.names.stream);
        let request = api_request(api, &GetLastMessage { last_by_subj: subject })?;
        let reply: ApiReply<GetLastReply> = self.request(request, via).await?;
        match reply {
            ApiReply::Error(error) if error.err_code == NO_MESSAGE => Ok(None),
            reply => {
                reply.into_result()?.message.read().map(Some).map_err(RequestError::Unacknowledged)
            }
        }
    }

    /// Reads the stream's settings and state, if there is a stream. Sets the clock and the capacity.
    pub(crate) async fn info(&self) -> Result<Option<StreamInfo>, RequestError> {
        let (subject, headers, payload) = (self.info_subject(), HeaderMap::new(), Bytes::new());
        let request = OutgoingRequest { subject, headers, payload };
        let (sent_at, used) = (Instant::now(), self.capacity.used());
        let reply: ApiReply<StreamInfo> = self.request(request, Via::Background).await?;
        match reply {
            ApiReply::Error(error) if error.err_code == NO_STREAM => Ok(None),
            reply => reply.into_result().map(|info| Some(self.note_info(info, sent_at, used))),
        }
    }

    fn note_info(&self, info: StreamInfo, sent_at: Instant, used: CapacityUsed) -> StreamInfo {
        if let Some(now) = info.now() {
            self.clock.set(now, sent_at.elapsed());
        }
        self.capacity.set(&info, used);
        info
    }

    pub(crate) async fn create(&self, config: &StreamConfig) -> Result<StreamInfo, RequestError> {
        let api = format!("$JS.API.STREAM.CREATE.{}", self.names.stream);
        let (sent_at, used) = (Instant::now(), self.capacity.used());
        let info = self.call(api_request(api, config)?, Via::Background).await?;
        Ok(self.note_info(info, sent_at, used))
    }

    /// All subjects that match, sorted.
    pub(crate) async fn subjects(&self, filter: &str) -> Result<Vec<String>, RequestError> {
        let mut pages = SubjectPages::new(SUBJECTS_PAGE);
        loop {
            let page = ListSubjects { subjects_filter: filter, offset: pages.offset() };
            let info: StreamInfo =
                self.call(api_request(self.info_subject(), &page)?, Via::Background).await?;
            if pages.add(info.state.subjects.unwrap_or_default().into_keys().collect()) {
                return Ok(pages.into_names());
            }
        }
    }

    /// Sends a request. An error reply is an error.
    pub(crate) fn call<T: DeserializeOwned>(
        &self,
        request: OutgoingRequest,
        via: Via,
    ) -> impl Future<Output = Result<T, RequestError>> + use<T> {
        self.request::<T>(request, via).map(|reply| reply?.into_result())
    }

    /// Queues a request at once, so that the returned future does not contain it.
    fn request<T: DeserializeOwned>(
        &self,
        request: OutgoingRequest,
        via: Via,
    ) -> impl Future<Output = Result<ApiReply<T>, RequestError>> + use<T> {
        let (reply_timeout, bytes) = (self.reply_timeout(), request.payload.len());
        let (reply_sender, reply) = oneshot::channel();
        let queued = QueuedRequest { request, until: Instant::now() + reply_timeout, reply_sender };
        let sent = self.queue(via).call(queued, bytes);
        timeout_with_grace(reply_timeout, reply).then(async move |reply| match reply {
            Some(Ok(reply)) => ApiReply::parse(&reply?),
            // It was not taken from the queue, or the pipeline that took it is gone.
            Some(Err(_)) => Err(sent
                .await
                .map_or_else(not_sent, |()| RequestError::Unacknowledged(sender_gone()))),
            None => Err(RequestError::Unacknowledged(timed_out())),
        })
    }

    fn queue(&self, via: Via) -> Arc<NatsRequestQueue> {
        match via {
            Via::Background if self.background.is_connected() => self.connections.background(),
            Via::Background | Via::Caller => self.connections.current(),
        }
    }

    /// How long a reply is awaited. After that, the rest of the call timeout is used to read the key.
    fn reply_timeout(&self) -> Duration {
        self.call_timeout / 2
    }

    /// True when there has been no connection for a while.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.background.is_disconnected() && !self.connections.current().is_ready()
    }

    /// The leader's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn info_subject(&self) -> String {
        format!("$JS.API.STREAM.INFO.{}", self.names.stream)
    }
}

/// Most subjects in one reply of the server.
const SUBJECTS_PAGE: usize = 100_000;
/// How long a tombstone is kept: longer than the server takes to sync. If it expired before, a crash could bring back
/// the deleted record.
const TOMBSTONE_SECONDS: u64 = 3600;
const INDEX_TOMBSTONE_SECONDS: u64 = 60;

/// A request to JetStream's API.
pub(crate) fn api_request(
    subject: String,
    body: &impl Serialize,
) -> Result<OutgoingRequest, RequestError> {
    let body = serde_json::to_vec(body).map_err(|_| RequestError::Refused(unexpected_reply()))?;
    Ok(OutgoingRequest { subject, headers: HeaderMap::new(), payload: body.into() })
}
