//! What a script says.

use redis::Value;
use semel_core::{Result, Timestamp};

use crate::{error::odd_reply, value::Expiry};

/// What a script did.
#[derive(Debug)]
pub(crate) enum Told {
    /// All that it was asked for, at this store time.
    Done(Timestamp),
    /// It ended a claim, and did not ask for the time.
    Finished,
    /// The key's owner holds a live lease, and the record is marked as waited for.
    Marked(Standing),
    /// Nothing.
    Stands(Standing, Option<Vec<u8>>),
}

/// How a key stands, but for its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Store time.
    pub(crate) now: Timestamp,
    pub(crate) expiry: Expiry,
}

impl Told {
    /// A list says what stood in the way.
    pub(crate) fn read(value: Value) -> Result<Self> {
        let parts = match value {
            Value::Okay => return Ok(Self::Finished),
            Value::Int(now) => return Ok(Self::Done(timestamp(now)?)),
            Value::Array(parts) => parts,
            _ => return Err(odd_reply()),
        };
        let mut parts = parts.into_iter();
        let did = integer(parts.next())?;
        let now = timestamp(integer(parts.next())?)?;
        let expiry = Expiry::from_server(integer(parts.next())?);
        let standing = Standing { now, expiry };
        match (did, parts.next()) {
            (0, Some(Value::BulkString(bytes))) => Ok(Self::Stands(standing, Some(bytes))),
            (0, Some(Value::Nil)) => Ok(Self::Stands(standing, None)),
            (2, None) => Ok(Self::Marked(standing)),
            _ => Err(odd_reply()),
        }
    }

    /// The store time, if it said so.
    pub(crate) const fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Done(now) => Some(*now),
            Self::Finished => None,
            Self::Marked(standing) | Self::Stands(standing, _) => Some(standing.now),
        }
    }
}

fn timestamp(millis: i64) -> Result<Timestamp> {
    Ok(Timestamp::from_millis(u64::try_from(millis).map_err(|_| odd_reply())?))
}

fn integer(value: Option<Value>) -> Result<i64> {
    match value {
        Some(Value::Int(number)) => Ok(number),
        _ => Err(odd_reply()),
    }
}
