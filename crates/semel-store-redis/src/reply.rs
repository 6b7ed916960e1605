//! What a script says.

use redis::Value;
use semel_core::{Result, Timestamp};

use crate::{error::odd_reply, value::Expiry};

/// What a script did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    /// Nothing; it says how the key stands.
    Nothing,
    /// What it was asked for.
    All,
    /// The key's owner holds a live lease, and the record is marked as waited for.
    Marked,
}

/// A script's reply.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) did: Did,
    /// Store time.
    pub(crate) now: Timestamp,
    pub(crate) expiry: Expiry,
    pub(crate) value: Option<Vec<u8>>,
}

impl Told {
    /// A number is the time at which all was done; a list says what stood in the way.
    pub(crate) fn read(value: Value) -> Result<Self> {
        let parts = match value {
            Value::Int(now) => return Ok(Self::all(timestamp(now)?)),
            Value::Array(parts) => parts,
            _ => return Err(odd_reply()),
        };
        let mut parts = parts.into_iter();
        let did = match integer(parts.next())? {
            0 => Did::Nothing,
            2 => Did::Marked,
            _ => return Err(odd_reply()),
        };
        let now = timestamp(integer(parts.next())?)?;
        let expiry = Expiry::from_server(integer(parts.next())?);
        let value = match (did, parts.next()) {
            (Did::Nothing, Some(Value::BulkString(bytes))) => Some(bytes),
            (Did::Nothing, Some(Value::Nil)) | (Did::Marked, None) => None,
            _ => return Err(odd_reply()),
        };
        Ok(Self { did, now, expiry, value })
    }

    const fn all(now: Timestamp) -> Self {
        Self { did: Did::All, now, expiry: Expiry::Absent, value: None }
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
