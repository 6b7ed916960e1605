//! JetStream's requests and replies, as far as they are used here.

use std::collections::HashMap;

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use semel_core::{Result, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::{Trouble, odd_reply, refused},
    rfc3339,
};

/// A reply is an answer or an error.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    Answer(T),
    Error(ApiError),
}

/// Why the server refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    pub(crate) err_code: u16,
    pub(crate) description: String,
}

impl<T: DeserializeOwned> Reply<T> {
    /// What the bytes of a reply say.
    pub(crate) fn of(reply: &[u8]) -> Result<Self, Trouble> {
        Self::read(reply).map_err(|_| Trouble::Lost(odd_reply()))
    }

    /// Looks for an error first: some answers carry both. Two passes are quicker than one that keeps what it
    /// cannot tell yet.
    pub(crate) fn read(reply: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Failure {
            error: Option<ApiError>,
        }
        match serde_json::from_slice(reply)? {
            Failure { error: Some(error) } => Ok(Self::Error(error)),
            Failure { error: None } => serde_json::from_slice(reply).map(Self::Answer),
        }
    }

    /// The answer, or the error.
    pub(crate) fn into_answer(self) -> Result<T, Trouble> {
        match self {
            Self::Answer(answer) => Ok(answer),
            Self::Error(error) => Err(refused(&error)),
        }
    }
}

/// Says where a message was stored.
#[derive(Debug, Deserialize)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
}

/// Asks the leader for the last message of a subject.
#[derive(Debug, Serialize)]
pub(crate) struct GetLast<'a> {
    pub(crate) last_by_subj: &'a str,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Got {
    pub(crate) message: RawMessage,
}

/// A message as the leader keeps it.
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
pub(crate) struct Message {
    pub(crate) revision: u64,
    /// When the server took it.
    pub(crate) at: Timestamp,
    /// `None`: a marker that says that the key is gone.
    pub(crate) value: Option<Bytes>,
    /// What the marker of a deletion carries, see [`Put::Gone`](crate::bucket_client::Put::Gone).
    pub(crate) mark: Bytes,
}

impl RawMessage {
    pub(crate) fn read(self) -> Result<Message> {
        let decoded = |text: String| Base64::decode_vec(&text).map_err(|_| odd_reply());
        let headers = decoded(self.hdrs)?;
        let at = rfc3339::parse(&self.time).ok_or_else(odd_reply)?;
        let data = Bytes::from(decoded(self.data)?);
        let (value, mark) =
            if is_marker(&headers) { (None, data) } else { (Some(data), Bytes::new()) };
        Ok(Message { revision: self.seq, at, value, mark })
    }
}

/// True for what a deletion, a purge or the end of a TTL leaves behind.
fn is_marker(headers: &[u8]) -> bool {
    let headers = String::from_utf8_lossy(headers);
    let mut pairs = headers.lines().filter_map(|line| line.split_once(':'));
    pairs.any(|(name, value)| {
        name.eq_ignore_ascii_case("Nats-Marker-Reason")
            || (name.eq_ignore_ascii_case("KV-Operation") && value.trim() != "PUT")
    })
}

/// What a stream says about itself.
#[derive(Debug, Deserialize)]
pub(crate) struct Info {
    pub(crate) config: Config,
    pub(crate) state: StreamState,
    /// Who else has a copy; only in a cluster.
    #[serde(default)]
    pub(crate) cluster: Option<Copies>,
    /// The leader's time; servers before 2.10 do not say it.
    ts: Option<String>,
}

impl Info {
    pub(crate) fn now(&self) -> Option<Timestamp> {
        rfc3339::parse(self.ts.as_deref()?)
    }
}

/// The copies of a stream beside the leader's.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Copies {
    #[serde(default)]
    pub(crate) replicas: Vec<Peer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Peer {
    /// Has all that the leader has.
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

/// Asks for the subjects of a stream, a page at a time.
#[derive(Debug, Serialize)]
pub(crate) struct ListSubjects<'a> {
    pub(crate) subjects_filter: &'a str,
    pub(crate) offset: usize,
}

/// The settings of a stream that matter here.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Config {
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

impl Default for Config {
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

/// Asks for a consumer that pushes the headers of what is new.
#[derive(Debug, Serialize)]
pub(crate) struct Consume<'a> {
    pub(crate) stream_name: &'a str,
    pub(crate) config: Consumer<'a>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Consumer<'a> {
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
pub(crate) struct Consuming {
    #[serde(rename = "name")]
    pub(crate) _name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_told_from_a_value() {
        for marker in ["KV-Operation: DEL", "KV-Operation:PURGE", "Nats-Marker-Reason: MaxAge"] {
            assert!(is_marker(format!("NATS/1.0\r\n{marker}\r\n\r\n").as_bytes()), "{marker}");
        }
        for value in ["NATS/1.0\r\nNats-TTL: 5s\r\n\r\n", "", "NATS/1.0\r\nKV-Operation: PUT\r\n"] {
            assert!(!is_marker(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn a_refusal_is_read_before_the_rest() {
        let text = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}"#;
        let reply = Reply::<Stored>::read(text.as_bytes()).unwrap();
        assert!(matches!(reply.into_answer(), Err(Trouble::Conflict)));
        let reply = Reply::<Stored>::read(br#"{"stream":"S","seq":9}"#).unwrap();
        assert_eq!(reply.into_answer().unwrap().seq, 9);
    }
}
