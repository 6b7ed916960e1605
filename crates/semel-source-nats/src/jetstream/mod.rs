//! JetStream's API on a connection: requests with a timeout, and publishing with an acknowledgement.
//!
//! The driver's own JetStream module is not used: when it reads a stored message, it keeps only the last value of a
//! repeated header, and it hides the error codes that the fixes in `error.rs` depend on.

mod api;
mod rfc3339;
mod stored_message;

use std::time::Duration;

use async_nats::{Client, HeaderMap, Request};
use bytes::Bytes;
use semel_core::Result;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use self::{
    api::{ApiReply, CreateConsumer, DeleteMessage, Deleted, MessageReply, NoBody},
    stored_message::RawMessage,
};
pub(crate) use self::{
    api::{
        ConsumerConfig, ConsumerInfo, GetMessage, NewConsumer, NewStream, PublishAck, PullRequest,
        StreamConfig, StreamInfo,
    },
    stored_message::StoredMessage,
};
use crate::error::{self, RequestError};

/// How long a request may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// JetStream, over one connection.
#[derive(Clone, Debug)]
pub(crate) struct JetStream {
    pub(crate) client: Client,
    prefix: String,
}

impl JetStream {
    pub(crate) fn new(client: Client, domain: Option<&str>) -> Self {
        let prefix =
            domain.map_or_else(|| "$JS.API".to_owned(), |domain| format!("$JS.{domain}.API"));
        Self { client, prefix }
    }

    /// The stream, or `None` if there is none.
    pub(crate) async fn stream_info(&self, stream: &str) -> Result<Option<StreamInfo>> {
        match self.request(&format!("STREAM.INFO.{stream}"), &NoBody {}).await {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.is(error::NO_STREAM) => Ok(None),
            Err(error) => Err(error.about(&format!("stream {stream}"))),
        }
    }

    pub(crate) async fn create_stream(&self, stream: &NewStream<'_>) -> Result<StreamInfo> {
        let made = self.request(&format!("STREAM.CREATE.{}", stream.name), stream).await;
        made.map_err(|error| error.about(&format!("stream {}", stream.name)))
    }

    /// The consumer, or `None` if there is none.
    pub(crate) async fn consumer_info(
        &self,
        stream: &str,
        consumer: &str,
    ) -> Result<Option<ConsumerInfo>> {
        match self.request(&format!("CONSUMER.INFO.{stream}.{consumer}"), &NoBody {}).await {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.is(error::NO_CONSUMER) => Ok(None),
            Err(error) => Err(error.about(&format!("stream {stream}"))),
        }
    }

    /// Makes a durable consumer. If another process has made one with this name, that one is kept.
    pub(crate) async fn create_consumer(
        &self,
        stream: &str,
        config: &NewConsumer<'_>,
    ) -> Result<()> {
        let name = config.durable_name;
        // This subject works on all servers and with any number of filters.
        let api = format!("CONSUMER.DURABLE.CREATE.{stream}.{name}");
        let request = CreateConsumer { stream_name: stream, config, action: "create" };
        match self.request::<ConsumerInfo>(&api, &request).await {
            Ok(_) => Ok(()),
            Err(error) if error.is(error::CONSUMER_EXISTS) => Ok(()),
            Err(error) => Err(error.about(&format!("consumer {name} of stream {stream}"))),
        }
    }

    /// A stored message, from the stream's leader.
    pub(crate) async fn message(
        &self,
        stream: &str,
        which: &GetMessage<'_>,
    ) -> Result<Option<StoredMessage>> {
        match self
            .request::<MessageReply<RawMessage>>(&format!("STREAM.MSG.GET.{stream}"), which)
            .await
        {
            Ok(reply) => reply.message.read().map(Some),
            Err(error) if error.is_no_message() => Ok(None),
            Err(error) => Err(error.about(&format!("stream {stream}"))),
        }
    }

    /// Removes a stored message. False if it was not there.
    pub(crate) async fn delete_message(&self, stream: &str, sequence: u64) -> Result<bool> {
        let request = DeleteMessage { seq: sequence, no_erase: true };
        match self.request::<Deleted>(&format!("STREAM.MSG.DELETE.{stream}"), &request).await {
            Ok(reply) => Ok(reply.success),
            Err(error) if error.is_no_message() => Ok(false),
            Err(error) => Err(error.about(&format!("stream {stream}"))),
        }
    }

    /// Publishes to the stream that captures `subject`, and waits until the stream has stored the message.
    pub(crate) async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<PublishAck, RequestError> {
        let request = Request::new().headers(headers).payload(payload);
        ApiReply::parse(&request_reply(&self.client, subject, request).await?)
    }

    /// The subject of a request for messages.
    pub(crate) fn next_message_subject(&self, stream: &str, consumer: &str) -> String {
        format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", self.prefix)
    }

    async fn request<T: DeserializeOwned>(
        &self,
        api: &str,
        body: &impl Serialize,
    ) -> Result<T, RequestError> {
        let subject = format!("{}.{api}", self.prefix);
        let body = serde_json::to_vec(body)
            .map_err(|_| RequestError::NoReply(error::unexpected_reply()))?;
        let request = Request::new().payload(body.into());
        ApiReply::parse(&request_reply(&self.client, &subject, request).await?)
    }
}

/// Sends a request and waits for the reply. The driver's own timeout does not cover the wait for a place in its queue,
/// which is full while there is no connection.
async fn request_reply(
    client: &Client,
    subject: &str,
    request: Request,
) -> Result<Bytes, RequestError> {
    let request = client.send_request(subject.to_owned(), request.timeout(Some(CALL_TIMEOUT)));
    let reply = timeout(CALL_TIMEOUT, request).await;
    Ok(reply.map_err(|_| RequestError::NoReply(error::timed_out()))??.payload)
}

/// Sends a settlement, and waits until the server has answered that it applied it.
pub(crate) async fn settle(client: &Client, ack_subject: &str, settlement: Bytes) -> Result<()> {
    let reply = request_reply(client, ack_subject, Request::new().payload(settlement)).await;
    reply.map(drop).map_err(|error| error.about("the consumer"))
}
