//! The invariants and their violations.

use std::fmt;

use crate::key::KeyId;

/// What must hold in every run.
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
    /// The invariant as a sentence.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::I1 => "a key on hold takes effect at most once",
            Self::I2 => "effect and record commit together (checked by the inbox run)",
            Self::I3 => {
                "no two runs share a token, and a lost owner keeps its whole lease and the grace period"
            }
            Self::I4 => "one outcome is recorded",
            Self::I5 => "every replay is the recorded outcome, byte for byte",
            Self::I6 => "an acknowledged claim or outcome is never lost",
            Self::I7 => "a recorded outcome never changes or disappears",
            Self::I8 => "tokens rise and nonces never repeat",
            Self::I9 => "a replaced owner can no longer renew, record or release",
            Self::I10 => "only the payload of the key is run and answered",
            Self::I11 => "no caller gets the outcome of another key",
            Self::I12 => {
                "nothing is acknowledged to a broker before it is recorded (not checked here)"
            }
            Self::I13 => "attempts stay within their limit, those that ended in a crash included",
            Self::I14 => "after the faults every key reaches a final state",
            Self::I15 => "the steps of a key fit into one order that respects time",
            Self::I16 => "enough happened in the run to prove something",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}: {}", self.promise())
    }
}

/// A violation of an invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The key, if it concerns one.
    pub key: Option<KeyId>,
    /// What was found.
    pub what: String,
    /// The history of the key, line by line.
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
