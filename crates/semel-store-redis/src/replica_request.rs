//! Copies of completed records, for a Redis that is the front of another store. They have keys of their own:
//! the store's own steps never see them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Cmd, Value, cmd};
use semel_core::{Error, KeyHash, Record, Replica, Result, Span, State, Timestamp};

use crate::{
    error::odd_reply,
    names::Names,
    script::{How, PUT, REMOVE},
    value::{Seen, Unreadable, encode},
};

/// Stands where a copy was removed, and keeps others away.
const MARK: &[u8] = b"removed";

/// A call about a copy.
#[derive(Debug)]
pub(crate) enum Ask {
    Look(KeyHash),
    Put(Box<Put>),
    Remove(KeyHash),
}

/// A copy on its way.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) copy: Replica,
    /// When the authority was asked for it.
    pub(crate) asked: Instant,
}

/// The answer to it.
#[derive(Debug)]
pub(crate) enum Said {
    Look(Option<Box<Replica>>),
    Put,
    Remove(bool),
}

impl Ask {
    pub(crate) const fn key(&self) -> &KeyHash {
        match self {
            Self::Look(key) | Self::Remove(key) => key,
            Self::Put(put) => &put.copy.record.key,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put(put) => put.copy.record.size(),
            Self::Look(_) | Self::Remove(_) => 0,
        }
    }

    /// The command that asks it; `now` is the server's time, about.
    pub(crate) fn command(&self, names: &Names, how: How, now: Timestamp) -> Cmd {
        let key = names.copy(self.key());
        match self {
            Self::Look(_) => {
                let mut get = cmd("GET");
                get.arg(&key[..]);
                get
            }
            Self::Put(put) => {
                let asked_at = now.before(put.asked.elapsed());
                let (value, expires_at) = written(&put.copy, asked_at);
                let mut call = PUT.call(&key, how);
                call.arg(&value[..]).arg(expires_at.as_millis());
                call.arg(asked_at.after(Replica::LATEST).as_millis());
                call
            }
            Self::Remove(_) => {
                let mut call = REMOVE.call(&key, how);
                call.arg(MARK).arg(millis(Replica::MARK)).arg(&names.channel);
                call
            }
        }
    }

    /// What a reply means; an error inside says that this copy cannot be read.
    pub(crate) fn taken(
        &self,
        value: Value,
        now: Timestamp,
    ) -> Result<Result<Said, Error>, Unreadable> {
        Ok(match (self, value) {
            (Self::Look(_), Value::Nil) => Ok(Said::Look(None)),
            (Self::Look(_), Value::BulkString(bytes)) if bytes == MARK => Ok(Said::Look(None)),
            (Self::Look(key), Value::BulkString(bytes)) => {
                let record = Seen::read(key, bytes)?.bare;
                Ok(Said::Look(shelved(record, now).map(Box::new)))
            }
            (Self::Put(_), Value::Int(_)) => Ok(Said::Put),
            (Self::Remove(_), Value::Int(was)) => Ok(Said::Remove(was == 1)),
            _ => Err(odd_reply()),
        })
    }
}

/// A copy as it is written: in the server's time, by which it expires.
fn written(copy: &Replica, asked_at: Timestamp) -> (Bytes, Timestamp) {
    let (completed_at, kept_until) = (copy.record.completed_at, copy.record.expires_at);
    let kept = kept_until.unwrap_or_default().since(completed_at.unwrap_or_default());
    let expires_at = asked_at.after(Span::from(copy.remaining).bounded());
    let record = Record {
        completed_at: Some(expires_at.before(kept)),
        expires_at: Some(expires_at),
        ..copy.record.clone()
    };
    (encode(&record).0, expires_at)
}

fn shelved(record: Record, now: Timestamp) -> Option<Replica> {
    let remaining = record.expires_at?.since(now);
    (record.state == State::Completed).then_some(Replica { record, remaining })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
