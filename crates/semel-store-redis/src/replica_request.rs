//! Requests about replicas: copies of completed records, in a Redis that is the front of another store. Replicas have
//! another key prefix than records, so a store with the same prefix never reads them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Cmd, Value, cmd};
use semel_core::{Error, KeyHash, Record, Replica, Result, Span, State, Timestamp};

use crate::{
    error::unexpected_reply,
    names::RedisNames,
    script::{PUT_REPLICA, REMOVE_REPLICA, ScriptCall},
    value::{StoredValue, UnreadableValue, encode},
};

/// Replaces a removed replica for a while, so that a late copy is not written.
const MARK: &[u8] = b"removed";

/// A request about a replica.
#[derive(Debug)]
pub(crate) enum ReplicaRequest {
    Get(KeyHash),
    Put(Box<ReplicaPut>),
    Remove(KeyHash),
}

/// A replica to write.
#[derive(Debug)]
pub(crate) struct ReplicaPut {
    pub(crate) replica: Replica,
    /// When the authority was asked for the record.
    pub(crate) requested: Instant,
}

/// The reply to a [`ReplicaRequest`].
#[derive(Debug)]
pub(crate) enum ReplicaReply {
    Get(Option<Box<Replica>>),
    Put,
    Remove(bool),
}

impl ReplicaRequest {
    pub(crate) const fn key(&self) -> &KeyHash {
        match self {
            Self::Get(key) | Self::Remove(key) => key,
            Self::Put(put) => &put.replica.record.key,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put(put) => put.replica.record.size(),
            Self::Get(_) | Self::Remove(_) => 0,
        }
    }

    /// The command for it. `now` is an estimate of the server's time.
    pub(crate) fn command(
        &self,
        names: &RedisNames,
        script_call: ScriptCall,
        now: Timestamp,
    ) -> Cmd {
        let key = names.replica(self.key());
        match self {
            Self::Get(_) => {
                let mut get = cmd("GET");
                get.arg(&key[..]);
                get
            }
            Self::Put(put) => {
                let requested_at = now.before(put.requested.elapsed());
                let (value, expires_at) = encode_replica(&put.replica, requested_at);
                let mut call = PUT_REPLICA.call(&key, script_call);
                call.arg(&value[..]).arg(expires_at.as_millis());
                call.arg(requested_at.after(Replica::LATEST).as_millis());
                call
            }
            Self::Remove(_) => {
                let mut call = REMOVE_REPLICA.call(&key, script_call);
                call.arg(MARK).arg(millis(Replica::MARK)).arg(&names.channel);
                call
            }
        }
    }

    /// Reads the reply. The inner error means that its shape is wrong.
    pub(crate) fn read_reply(
        &self,
        value: Value,
        now: Timestamp,
    ) -> Result<Result<ReplicaReply, Error>, UnreadableValue> {
        Ok(match (self, value) {
            (Self::Get(_), Value::Nil) => Ok(ReplicaReply::Get(None)),
            (Self::Get(_), Value::BulkString(bytes)) if bytes == MARK => {
                Ok(ReplicaReply::Get(None))
            }
            (Self::Get(key), Value::BulkString(bytes)) => {
                let record = StoredValue::read(key, bytes)?.untimed;
                Ok(ReplicaReply::Get(replica_of(record, now).map(Box::new)))
            }
            (Self::Put(_), Value::Int(_)) => Ok(ReplicaReply::Put),
            (Self::Remove(_), Value::Int(was)) => Ok(ReplicaReply::Remove(was == 1)),
            _ => Err(unexpected_reply()),
        })
    }
}

/// A replica as it is written, with times of this server's clock, and when it expires.
fn encode_replica(replica: &Replica, requested_at: Timestamp) -> (Bytes, Timestamp) {
    let (completed_at, kept_until) = (replica.record.completed_at, replica.record.expires_at);
    let kept = kept_until.unwrap_or_default().since(completed_at.unwrap_or_default());
    let expires_at = requested_at.after(Span::from(replica.remaining).bounded());
    let record = Record {
        completed_at: Some(expires_at.before(kept)),
        expires_at: Some(expires_at),
        ..replica.record.clone()
    };
    (encode(&record).0, expires_at)
}

fn replica_of(record: Record, now: Timestamp) -> Option<Replica> {
    let remaining = record.expires_at?.since(now);
    (record.state == State::Completed).then_some(Replica { record, remaining })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
