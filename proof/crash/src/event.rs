//! The events that a history consists of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::KeyId;

/// One line of the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// The order in which the harness read it.
    #[serde(default)]
    pub seq: u64,
    /// When it happened, by [`mono`](crate::mono), read in the process in which it happened.
    pub t_mono: u64,
    /// The number of the process, from 1 in the order of their starts; 0 is the harness.
    #[serde(default)]
    pub process: u32,
    /// The operation.
    pub op: Op,
    /// The begin of a call, or how it ended.
    pub r#type: EventKind,
    /// The number that a call and its end share within a process.
    pub call: u64,
    /// The rest, as far as it applies.
    #[serde(flatten)]
    pub detail: Detail,
}

/// The content of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The number of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<u8>,
    /// The nonce of the owner, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Hex>,
    /// The token of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The reply.
    #[serde(alias = "answer", skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyKind>,
    /// A hash of the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hex>,
    /// The key that is named in the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<KeyId>,
    /// The work did not run for this caller.
    #[serde(skip_serializing_if = "is_false")]
    pub replayed: bool,
    /// The outcome is recorded.
    #[serde(skip_serializing_if = "is_false")]
    pub stored: bool,
    /// The former owner was lost.
    #[serde(skip_serializing_if = "is_false")]
    pub takeover: bool,
    /// The kill point that was reached, or the fault that was injected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The operation of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A client called the engine.
    Run,
    /// The engine called the store.
    Claim,
    /// The engine called the store.
    Renew,
    /// The engine called the store.
    Complete,
    /// The engine called the store.
    Release,
    /// The engine called the store.
    Abandon,
    /// The engine called the store.
    Get,
    /// The engine called the store.
    Purge,
    /// The operator forgot the key.
    Forget,
    /// The operator erased the key.
    Erase,
    /// A worker begins its load.
    Ready,
    /// A worker has stopped at a kill point.
    Point,
    /// A worker has done its job.
    Done,
    /// A record at the end of a run, of a store that lives in the process of the worker.
    Dump,
    /// The harness noticed the end of a process.
    Exit,
    /// The harness injected a fault into the server; [`Detail::point`] names it.
    #[serde(alias = "blow")]
    Fault,
}

/// The kill of the server: requests sent to it before cannot take effect any more.
pub(crate) const SERVER_KILL: &str = "server-kill";
/// The kill of the front of an arbiter. The front decides nothing, so requests to the authority still take effect.
pub(crate) const FRONT_KILL: &str = "front-server-kill";
/// The kill of the leader of a cluster. The other nodes have what it acknowledged.
pub(crate) const LEADER_KILL: &str = "leader-kill";

/// The begin of a call, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The call began.
    Invoke,
    /// It was answered.
    Ok,
    /// It was refused: it has no effect.
    Fail,
    /// Its reply was lost: it may have taken effect, or may still do so.
    Info,
}

/// The kind of a reply, or the state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub enum ReplyKind {
    Granted,
    Replay,
    Busy,
    Mismatch,
    Unknown,
    Dead,
    Gone,
    Released,
    Extended,
    Lost,
    Recorded,
    Superseded,
    Missing,
    Open,
    Lapsing,
    Absent,
    InProgress,
    Completed,
    Erased,
    Forgotten,
    Refused,
    Done,
    Retry,
    Error,
}

/// Eight bytes shown as hex: enough to tell nonces and outcomes of one run apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hex(pub u64);

impl Hex {
    /// The first eight of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Hex> for String {
    fn from(hex: Hex) -> Self {
        hex.to_string()
    }
}

impl TryFrom<String> for Hex {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

impl fmt::Display for Event {
    /// One line for a report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.t_mono / 1000 % 10_000_000;
        write!(f, "{:>7} {ms:>7}.{:03} p{:<5}", self.seq, self.t_mono % 1000, self.process)?;
        write!(f, "{:<8} {:<6}", lower(&self.op), lower(&self.r#type))?;
        write!(f, " #{:<6}{}", self.call, self.detail)
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn part<T: fmt::Display>(
            f: &mut fmt::Formatter<'_>,
            name: &str,
            value: Option<T>,
        ) -> fmt::Result {
            value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
        }
        part(f, "key", self.key)?;
        part(f, "reply", self.reply.map(|reply| lower(&reply)))?;
        part(f, "token", self.token)?;
        part(f, "attempt", self.attempt)?;
        part(f, "fp", self.fingerprint)?;
        part(f, "nonce", self.nonce)?;
        part(f, "digest", self.digest)?;
        part(f, "of", self.of)?;
        part(f, "point", self.point.as_deref())?;
        let flags =
            [("replayed", self.replayed), ("stored", self.stored), ("takeover", self.takeover)];
        flags.into_iter().filter(|(_, set)| *set).try_for_each(|(name, _)| write!(f, " {name}"))
    }
}

fn lower(value: &impl fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}
