//! Reads the replies of scripts.

use redis::Value;
use semel_core::{Result, Timestamp};

use crate::{error::unexpected_reply, value::Expiry};

/// The reply of a script.
#[derive(Debug)]
pub(crate) enum ScriptReply {
    /// The script did what it was called for, at this server time.
    Done(Timestamp),
    /// The script completed a claim. This reply has no time.
    Completed,
    /// Another owner holds a live lease, and the record is marked as waited for.
    Busy(RedisKeyStatus),
    /// The script changed nothing, and returns the record.
    Undecided(RedisKeyStatus, Option<Vec<u8>>),
}

/// The server's time and the expiry of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedisKeyStatus {
    /// Server time.
    pub(crate) now: Timestamp,
    pub(crate) expiry: Expiry,
}

impl ScriptReply {
    /// Reads a reply. A list means that the script did not do what it was called for.
    pub(crate) fn read(value: Value) -> Result<Self> {
        let parts = match value {
            Value::Okay => return Ok(Self::Completed),
            Value::Int(now) => return Ok(Self::Done(timestamp(now)?)),
            Value::Array(parts) => parts,
            _ => return Err(unexpected_reply()),
        };
        let mut parts = parts.into_iter();
        let code = integer(parts.next())?;
        let now = timestamp(integer(parts.next())?)?;
        let expiry = Expiry::from_server(integer(parts.next())?);
        let status = RedisKeyStatus { now, expiry };
        match (code, parts.next()) {
            (0, Some(Value::BulkString(bytes))) => Ok(Self::Undecided(status, Some(bytes))),
            (0, Some(Value::Nil)) => Ok(Self::Undecided(status, None)),
            (2, None) => Ok(Self::Busy(status)),
            _ => Err(unexpected_reply()),
        }
    }

    /// The server's time, if the reply has it.
    pub(crate) const fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Done(now) => Some(*now),
            Self::Completed => None,
            Self::Busy(status) | Self::Undecided(status, _) => Some(status.now),
        }
    }
}

fn timestamp(millis: i64) -> Result<Timestamp> {
    Ok(Timestamp::from_millis(u64::try_from(millis).map_err(|_| unexpected_reply())?))
}

fn integer(value: Option<Value>) -> Result<i64> {
    match value {
        Some(Value::Int(number)) => Ok(number),
        _ => Err(unexpected_reply()),
    }
}
