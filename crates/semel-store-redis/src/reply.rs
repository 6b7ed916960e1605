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
    pub(crate) fn read(value: Value) -> Result<Self> {
        let Value::Array(parts) = value else { return Err(odd_reply()) };
        let mut parts = parts.into_iter();
        let did = match integer(parts.next())? {
            0 => Did::Nothing,
            1 => Did::All,
            2 => Did::Marked,
            _ => return Err(odd_reply()),
        };
        let now = u64::try_from(integer(parts.next())?).map_err(|_| odd_reply())?;
        let expiry = match (did, parts.next()) {
            (Did::All, None) => Expiry::Absent,
            (_, at) => Expiry::from_server(integer(at)?),
        };
        let value = match (did, parts.next()) {
            (Did::Nothing, Some(Value::BulkString(bytes))) => Some(bytes),
            (Did::Nothing, Some(Value::Nil)) | (Did::All | Did::Marked, None) => None,
            _ => return Err(odd_reply()),
        };
        Ok(Self { did, now: Timestamp::from_millis(now), expiry, value })
    }
}

fn integer(value: Option<Value>) -> Result<i64> {
    match value {
        Some(Value::Int(number)) => Ok(number),
        _ => Err(odd_reply()),
    }
}
