//! JetStream's API: the requests and replies that this store uses.

use std::collections::HashMap;

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use semel_core::{Result, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::{RequestError, classify, unexpected_reply},
    rfc3339,
};

/// A reply of the API.
#[derive(Debug)]
pub(crate) enum ApiReply<T> {
    Success(T),
    Error(ApiError),
}

/// Why the server refused a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    pub(crate) err_code: u16,
    pub(crate) description: String,
}

impl<T: DeserializeOwned> ApiReply<T> {
    /// Parses a reply. One that cannot be parsed leaves open whether the request was executed.
    pub(crate) fn parse(reply: &[u8]) -> Result<Self, RequestError> {
        Self::read(reply).map_err(|_| RequestError::Unacknowledged(unexpected_reply()))
    }

    /// Looks for an error first: some replies contain both. Two passes are quicker than one that buffers the other
    /// fields.
    pub(crate) fn read(reply: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct ErrorPart {
            error: Option<ApiError>,
        }
        match serde_json::from_slice(reply)? {
            ErrorPart { error: Some(error) } => Ok(Self::Error(error)),
            ErrorPart { error: None } => serde_json::from_slice(reply).map(Self::Success),
        }
    }

    /// The result, or the error.
    pub(crate) fn into_result(self) -> Result<T, RequestError> {
        match self {
            Self::Success(value) => Ok(value),
            Self::Error(error) => Err(classify(&error)),
        }
    }
}

/// Acknowledges a stored message.
#[derive(Debug, Deserialize)]
pub(crate) struct PublishAck {
    pub(crate) seq: u64,
}

/// Requests the last message of a subject from the leader.
#[derive(Debug, Serialize)]
pub(crate) struct GetLastMessage<'a> {
    pub(crate) last_by_subj: &'a str,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GetLastReply {
    pub(crate) message: RawMessage,
}

/// A message, encoded as in the reply.
#[derive(Debug, Deserialize)]
pub(crate) struct RawMessage {
    seq: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    hdrs: String,
    time: String,
}

/// The last message of a subject.
#[derive(Clone, Debug)]
pub(crate) struct StoredMessage {
    pub(crate) revision: u64,
    /// When the server stored it.
    pub(crate) at: Timestamp,
    /// `None` for a tombstone.
    pub(crate) value: Option<Bytes>,
    /// The mark of a tombstone, see `BucketWrite::Tombstone`.
    pub(crate) mark: Bytes,
}

impl RawMessage {
    pub(crate) fn read(self) -> Result<StoredMessage> {
        let decoded = |text: String| Base64::decode_vec(&text).map_err(|_| unexpected_reply());
        let headers = decoded(self.hdrs)?;
        let at = rfc3339::parse(&self.time).ok_or_else(unexpected_reply)?;
        let data = Bytes::from(decoded(self.data)?);
        let (value, mark) =
            if is_tombstone(&headers) { (None, data) } else { (Some(data), Bytes::new()) };
        Ok(StoredMessage { revision: self.seq, at, value, mark })
    }
}

/// True for the message that a deletion, a purge or the end of a TTL leaves.
fn is_tombstone(headers: &[u8]) -> bool {
    let headers = String::from_utf8_lossy(headers);
    let mut pairs = headers.lines().filter_map(|line| line.split_once(':'));
    pairs.any(|(name, value)| {
        name.eq_ignore_ascii_case("Nats-Marker-Reason")
            || (name.eq_ignore_ascii_case("KV-Operation") && value.trim() != "PUT")
    })
}

/// Settings and state of a stream.
#[derive(Debug, Deserialize)]
pub(crate) struct StreamInfo {
    pub(crate) config: StreamConfig,
    pub(crate) state: StreamState,
    /// The other servers with a copy; only in a cluster.
    #[serde(default)]
    pub(crate) cluster: Option<ClusterInfo>,
    /// The leader's time; servers before 2.10 do not send it.
    ts: Option<String>,
}

impl StreamInfo {
    pub(crate) fn now(&self) -> Option<Timestamp> {
        rfc3339::parse(self.ts.as_deref()?)
    }
}

/// The followers of a stream's leader.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ClusterInfo {
    #[serde(default)]
    pub(crate) replicas: Vec<PeerInfo>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PeerInfo {
    /// It has everything that the leader has.
    pub(crate) current: bool,
    pub(crate) offline: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StreamState {
    #[serde(default)]
    pub(crate) messages: u64,
    #[serde(default)]
    pub(crate) bytes: u64,
    #[serde(default)]
    pub(crate) subjects: Option<HashMap<String, u64>>,
}

/// Requests the subjects of a stream, a page at a time.
#[derive(Debug, Serialize)]
pub(crate) struct ListSubjects<'a> {
    pub(crate) subjects_filter: &'a str,
    pub(crate) offset: usize,
}

/// The settings of a stream that this store uses.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct StreamConfig {
    pub(crate) name: String,
    pub(crate) subjects: Vec<String>,
    pub(crate) retention: String,
    pub(crate) storage: String,
    pub(crate) discard: String,
    pub(crate) discard_new_per_subject: bool,
    pub(crate) num_replicas: u8,
    pub(crate) max_msgs_per_subject: i64,
    pub(crate) max_msgs: i64,
    pub(crate) max_bytes: i64,
    pub(crate) max_msg_size: i64,
    /// Nanoseconds; zero for ever.
    pub(crate) max_age: u64,
    pub(crate) allow_rollup_hdrs: bool,
    pub(crate) allow_direct: bool,
    pub(crate) deny_delete: bool,
    pub(crate) sealed: bool,
    pub(crate) no_ack: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) allow_msg_ttl: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) persist_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mirror: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject_transform: Option<serde_json::Value>,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            subjects: Vec::new(),
            retention: "limits".to_owned(),
            storage: "file".to_owned(),
            discard: "old".to_owned(),
            discard_new_per_subject: false,
            num_replicas: 1,
            max_msgs_per_subject: -1,
            max_msgs: -1,
            max_bytes: -1,
            max_msg_size: -1,
            max_age: 0,
            allow_rollup_hdrs: false,
            allow_direct: false,
            deny_delete: false,
            sealed: false,
            no_ack: false,
            allow_msg_ttl: false,
            persist_mode: None,
            mirror: None,
            subject_transform: None,
        }
    }
}

/// Requests a consumer that pushes the headers of new messages.
#[derive(Debug, Serialize)]
pub(crate) struct CreateConsumer<'a> {
    pub(crate) stream_name: &'a str,
    pub(crate) config: ConsumerConfig<'a>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ConsumerConfig<'a> {
    pub(crate) deliver_subject: &'a str,
    pub(crate) deliver_policy: &'a str,
    pub(crate) ack_policy: &'a str,
    pub(crate) replay_policy: &'a str,
    pub(crate) filter_subject: &'a str,
    pub(crate) max_deliver: i64,
    pub(crate) headers_only: bool,
    pub(crate) mem_storage: bool,
    pub(crate) num_replicas: u8,
    /// Nanoseconds.
    pub(crate) idle_heartbeat: u64,
    /// Nanoseconds.
    pub(crate) inactive_threshold: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConsumerInfo {
    #[serde(rename = "name")]
    pub(crate) _name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_is_distinguished_from_a_value() {
        for marker in ["KV-Operation: DEL", "KV-Operation:PURGE", "Nats-Marker-Reason: MaxAge"] {
            assert!(is_tombstone(format!("NATS/1.0\r\n{marker}\r\n\r\n").as_bytes()), "{marker}");
        }
        for value in ["NATS/1.0\r\nNats-TTL: 5s\r\n\r\n", "", "NATS/1.0\r\nKV-Operation: PUT\r\n"] {
            assert!(!is_tombstone(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn an_error_is_read_before_the_rest() {
        let text = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}"#;
        let reply = ApiReply::<PublishAck>::read(text.as_bytes()).unwrap();
        assert!(matches!(reply.into_result(), Err(RequestError::Conflict)));
        let reply = ApiReply::<PublishAck>::read(br#"{"stream":"S","seq":9}"#).unwrap();
        assert_eq!(reply.into_result().unwrap().seq, 9);
    }
}
