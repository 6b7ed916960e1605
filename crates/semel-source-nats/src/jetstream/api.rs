//! The requests and replies of JetStream's API that this crate uses.

use semel_core::Result;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{ApiError, RequestError, unexpected_reply};

/// Parses replies, which hold an error or a result.
pub(super) struct ApiReply;

impl ApiReply {
    /// Looks for an error first: some replies contain both.
    pub(super) fn parse<T: DeserializeOwned>(reply: &[u8]) -> Result<T, RequestError> {
        #[derive(Deserialize)]
        struct ErrorPart {
            error: Option<ApiError>,
        }
        let unreadable = |_| RequestError::NoReply(unexpected_reply());
        match serde_json::from_slice(reply).map_err(unreadable)? {
            ErrorPart { error: Some(error) } => Err(RequestError::Refused(error)),
            ErrorPart { error: None } => serde_json::from_slice(reply).map_err(unreadable),
        }
    }
}

/// The body of a request that has none.
#[derive(Debug, Serialize)]
pub(super) struct NoBody {}

/// Acknowledges a message that a stream has stored, or had stored before with the same `Nats-Msg-Id`.
#[derive(Debug, Deserialize)]
pub(crate) struct PublishAck {
    #[serde(rename = "seq")]
    _sequence: u64,
}

/// Which message to read.
#[derive(Debug, Default, Serialize)]
pub(crate) struct GetMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_by_subj: Option<&'a str>,
    /// The first message with this subject at `seq` or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_by_subj: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MessageReply<T> {
    pub(super) message: T,
}

#[derive(Debug, Serialize)]
pub(super) struct DeleteMessage {
    pub(super) seq: u64,
    /// Does not overwrite the bytes on disk.
    pub(super) no_erase: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Deleted {
    #[serde(default)]
    pub(super) success: bool,
}

/// A stream.
#[derive(Debug, Deserialize)]
pub(crate) struct StreamInfo {
    pub(crate) config: StreamConfig,
}

/// The settings of a stream that this crate looks at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamConfig {
    pub(crate) subjects: Vec<String>,
    pub(crate) retention: String,
    pub(crate) storage: String,
    pub(crate) discard: String,
    pub(crate) discard_new_per_subject: bool,
    pub(crate) max_msgs_per_subject: i64,
    /// Nanoseconds; zero for ever.
    pub(crate) max_age: u64,
    pub(crate) allow_rollup_hdrs: bool,
    pub(crate) deny_delete: bool,
    pub(crate) sealed: bool,
    pub(crate) no_ack: bool,
    pub(crate) mirror: Option<serde_json::Value>,
    pub(crate) subject_transform: Option<serde_json::Value>,
}

/// A stream to make.
#[derive(Debug, Serialize)]
pub(crate) struct NewStream<'a> {
    pub(crate) name: &'a str,
    pub(crate) subjects: [String; 1],
    pub(crate) retention: &'a str,
    pub(crate) storage: &'a str,
    pub(crate) discard: &'a str,
    pub(crate) num_replicas: u8,
    pub(crate) max_msgs_per_subject: i64,
    pub(crate) max_msgs: i64,
    pub(crate) max_bytes: i64,
    pub(crate) max_age: u64,
    pub(crate) allow_direct: bool,
}

/// A consumer.
#[derive(Debug, Deserialize)]
pub(crate) struct ConsumerInfo {
    pub(crate) config: ConsumerConfig,
    /// Messages that were not delivered yet.
    #[serde(default)]
    pub(crate) num_pending: u64,
}

/// The settings of a consumer that this crate looks at. Durations are nanoseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConsumerConfig {
    pub(crate) durable_name: Option<String>,
    /// Only consumers that push have one.
    pub(crate) deliver_subject: Option<String>,
    pub(crate) ack_policy: String,
    pub(crate) ack_wait: u64,
    pub(crate) backoff: Vec<u64>,
    pub(crate) max_deliver: i64,
    pub(crate) max_ack_pending: i64,
    pub(crate) filter_subject: String,
    pub(crate) filter_subjects: Vec<String>,
    pub(crate) headers_only: bool,
    /// The most messages that one request may ask for; zero without limit.
    pub(crate) max_batch: i64,
    /// The longest time that one request may wait; zero without limit.
    pub(crate) max_expires: u64,
    pub(crate) inactive_threshold: u64,
    pub(crate) mem_storage: bool,
    pub(crate) priority_groups: Vec<String>,
}

/// A consumer to make. Durations are nanoseconds.
#[derive(Debug, Serialize)]
pub(crate) struct NewConsumer<'a> {
    pub(crate) durable_name: &'a str,
    pub(crate) deliver_policy: &'a str,
    pub(crate) ack_policy: &'a str,
    pub(crate) replay_policy: &'a str,
    pub(crate) ack_wait: u64,
    pub(crate) max_deliver: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter_subject: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(crate) filter_subjects: &'a [String],
}

#[derive(Debug, Serialize)]
pub(super) struct CreateConsumer<'a> {
    pub(super) stream_name: &'a str,
    pub(super) config: &'a NewConsumer<'a>,
    pub(super) action: &'a str,
}

/// A request for messages. Durations are nanoseconds.
#[derive(Debug, Serialize)]
pub(crate) struct PullRequest {
    pub(crate) batch: usize,
    /// Ends when there are no more messages, but not before the first.
    pub(crate) no_wait: bool,
    pub(crate) expires: u64,
    pub(crate) idle_heartbeat: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_before_the_rest() {
        let text = br#"{"error":{"code":404,"err_code":10059,"description":"stream not found"},"stream":"S","seq":0}"#;
        let refused = ApiReply::parse::<PublishAck>(text).unwrap_err();
        assert!(refused.is(crate::error::NO_STREAM));
        assert!(
            ApiReply::parse::<PublishAck>(br#"{"stream":"S","seq":9,"duplicate":true}"#).is_ok()
        );
        assert!(ApiReply::parse::<PublishAck>(b"hello").is_err());
    }
}
