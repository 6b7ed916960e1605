//! What the history is made of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::KeyId;

/// One line of the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Order in which the harness read it.
    #[serde(default)]
    pub seq: u64,
    /// When it happened, by [`mono`](crate::mono), in the process it happened in.
    pub t_mono: u64,
    /// Which process, counted from 1 in the order they were started; 0 is the harness.
    #[serde(default)]
    pub process: u32,
    /// What was called.
    pub op: Op,
    /// Whether this is the call or its end.
    pub r#type: Kind,
    /// Joins a call and its end within a process.
    pub call: u64,
    /// Everything else, as far as it applies.
    #[serde(flatten)]
    pub detail: Detail,
}

/// What an event says besides when and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// Which of a few payloads was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<u8>,
    /// The random half of the owner, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Hex>,
    /// The counting half of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Which attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Hash of the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hex>,
    /// The key that the outcome says it belongs to.
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
    /// The named point that was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A client asked the engine.
    Run,
    /// The engine asked the store.
    Claim,
    /// The engine asked the store.
    Renew,
    /// The engine asked the store.
    Complete,
    /// The engine asked the store.
    Release,
    /// The engine asked the store.
    Abandon,
    /// The engine asked the store.
    Get,
    /// The engine asked the store.
    Purge,
    /// An operator deleted what nobody owns.
    Forget,
    /// An operator left a tombstone.
    Erase,
    /// A worker is under load.
    Ready,
    /// A worker stands still at a named point.
    Point,
    /// A worker has done all it was asked for.
    Done,
    /// A record at the end, of a store that ends with its process.
    Dump,
    /// The harness saw the end of a process.
    Exit,
    /// The harness did something to the server; the point says what.
    Blow,
}

/// The blow after which nothing that was sent before can happen any more.
pub(crate) const SERVER_KILL: &str = "server-kill";
/// The same to a server that decides nothing: no call dies with it.
pub(crate) const FRONT_KILL: &str = "front-server-kill";
/// The same to the leader of a cluster: the others have what it acknowledged.
pub(crate) const LEADER_KILL: &str = "leader-kill";

/// Whether an event is a call or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The call.
    Invoke,
    /// It was answered.
    Ok,
    /// It was refused: it did not happen.
    Fail,
    /// Nobody knows: it may have happened, or may yet happen.
    Info,
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub enum Answer {
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
    /// One line for people.
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
        part(f, "answer", self.answer.map(|answer| lower(&answer)))?;
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
