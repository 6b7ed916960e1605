//! The invariants by name.

use std::fmt;

use crate::key::KeyId;

/// What must be true of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`promise` says it")]
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
    I15,
    I16,
}

impl Invariant {
    /// What is promised.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::I1 => "a key on hold takes effect once at most",
            Self::I2 => "effect and record commit together (checked where there are transactions)",
            Self::I3 => "no two runs share a token, and a lost owner is left its whole lease",
            Self::I4 => "one outcome is recorded",
            Self::I5 => "every replay is the recorded outcome, byte for byte",
            Self::I6 => "an acknowledged claim or outcome is never lost",
            Self::I7 => "a recorded outcome never changes or goes back",
            Self::I8 => "tokens rise and nonces never repeat",
            Self::I9 => "whoever was replaced can no longer renew, record or give back",
            Self::I10 => "only what was asked for under the key is run and answered",
            Self::I11 => "nobody gets another's answer",
            Self::I12 => "nothing is acknowledged before it is recorded (checked with brokers)",
            Self::I13 => "attempts stay within their cap, fatal ones included",
            Self::I14 => "after the faults every key comes to an end",
            Self::I15 => "the steps of a key fit into one order",
            Self::I16 => "the run had something to prove",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}: {}", self.promise())
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// Of which key, if of one.
    pub key: Option<KeyId>,
    /// What was seen.
    pub what: String,
    /// Everything that is known about the key, line by line.
    pub lines: Vec<String>,
}

impl Violation {
    pub(super) fn new(invariant: Invariant, key: Option<KeyId>, what: String) -> Self {
        Self { invariant, key, what, lines: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "BROKEN {}", self.invariant)?;
        if let Some(key) = self.key {
            writeln!(f, "  key {key} ({:?})", key.class())?;
        }
        write!(f, "  {}", self.what)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}
