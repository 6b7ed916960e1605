//! Kill points: a worker that reaches the one in its job reports it and stops itself with SIGSTOP, until the
//! harness kills or continues it.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use nix::sys::signal::{Signal, raise};

use super::journal::Journal;
use crate::{
    event::{Detail, Op},
    key::KeyId,
};

/// Every kill point. `after-…` of a store step: the store has replied, and the engine has not got the reply yet.
pub const KILL_POINTS: &[&str] = &[
    "before-claim",
    "after-claim",
    "before-effect",
    "after-effect",
    "before-complete",
    "after-complete",
    "before-release",
    "after-release",
    "before-abandon",
    "after-abandon",
    "before-renew",
    "after-renew",
    "after-answer",
];

/// A kill point and its nth passing, written `after-effect:3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopAt {
    /// One of [`KILL_POINTS`].
    pub point: String,
    /// Counted from one.
    pub passing: u32,
}

impl fmt::Display for StopAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.point, self.passing)
    }
}

impl FromStr for StopAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (point, passing) = text.split_once(':').unwrap_or((text, "1"));
        if !KILL_POINTS.contains(&point) {
            return Err(format!("no kill point `{point}`; there are {}", KILL_POINTS.join(", ")));
        }
        let passing = passing.parse().map_err(|_| format!("`{passing}` is not a number"))?;
        Ok(Self { point: point.to_owned(), passing })
    }
}

/// Counts passings of the point to stop at.
#[derive(Debug)]
pub(super) struct KillPoints {
    stop_at: Option<StopAt>,
    passed: AtomicU32,
    journal: Arc<Journal>,
}

impl KillPoints {
    pub(super) const fn new(stop_at: Option<StopAt>, journal: Arc<Journal>) -> Self {
        Self { stop_at, passed: AtomicU32::new(0), journal }
    }

    /// Stops the process if this is the point and the passing to stop at.
    pub(super) fn reach(&self, point: &str, key: Option<KeyId>) {
        let Some(stop_at) = self.stop_at.as_ref().filter(|it| it.point == point) else { return };
        if self.passed.fetch_add(1, Relaxed) + 1 == stop_at.passing {
            let point = Some(point.to_owned());
            self.journal.note(Op::Point, Detail { key, point, ..Detail::default() });
            raise(Signal::SIGSTOP).expect("a process may stop itself");
        }
    }
}
