//! Named points: a worker that reaches the one it was told says so and stands still, as a whole, until
//! it is killed or told to go on.

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

/// Every point. `after-…` of a store step: the store has answered and nobody was told yet.
pub const POINTS: &[&str] = &[
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

/// A point and which passing of it, written `after-effect:3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopAt {
    /// One of [`POINTS`].
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
        if !POINTS.contains(&point) {
            return Err(format!("no point `{point}`; known are {}", POINTS.join(", ")));
        }
        let passing = passing.parse().map_err(|_| format!("`{passing}` is not a number"))?;
        Ok(Self { point: point.to_owned(), passing })
    }
}

/// Watches for the point to stop at.
#[derive(Debug)]
pub(super) struct Points {
    stop_at: Option<StopAt>,
    passed: AtomicU32,
    journal: Arc<Journal>,
}

impl Points {
    pub(super) const fn new(stop_at: Option<StopAt>, journal: Arc<Journal>) -> Self {
        Self { stop_at, passed: AtomicU32::new(0), journal }
    }

    /// Stands still here if this is the place.
    pub(super) fn pass(&self, point: &str, key: Option<KeyId>) {
        let Some(stop_at) = self.stop_at.as_ref().filter(|it| it.point == point) else { return };
        if self.passed.fetch_add(1, Relaxed) + 1 == stop_at.passing {
            let point = Some(point.to_owned());
            self.journal.note(Op::Point, Detail { key, point, ..Detail::default() });
            raise(Signal::SIGSTOP).expect("a process may stop itself");
        }
    }
}
