//! What can happen to a server and to the way there.

use std::time::Duration;

use anyhow::Result;
use rand::{RngExt, rngs::StdRng};
use semel_faults::Fault;

use super::backend::Backend;
use crate::{event::SERVER_KILL, history::History};

/// Replies that are lost in a row.
const REPLIES: u32 = 3;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    Kill,
    Pause,
    FlushScripts,
    Cut,
    LoseReplies,
    BlackHole,
    OneWay,
    Hold,
    Slow,
    Refuse,
}

impl Blow {
    pub(super) const ALL: [Self; 10] = [
        Self::Kill,
        Self::Pause,
        Self::FlushScripts,
        Self::Cut,
        Self::LoseReplies,
        Self::BlackHole,
        Self::OneWay,
        Self::Hold,
        Self::Slow,
        Self::Refuse,
    ];

    /// What the history calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => SERVER_KILL,
            Self::Pause => "server-pause",
            Self::FlushScripts => "script-flush",
            Self::Cut => "cut",
            Self::LoseReplies => "lost-replies",
            Self::BlackHole => "black-hole",
            Self::OneWay => "one-way",
            Self::Hold => "hold",
            Self::Slow => "slow",
            Self::Refuse => "refuse",
        }
    }

    /// Does it, and writes down that it was done.
    pub(super) fn fall(self, on: &Backend, rng: &mut StdRng, history: &History) -> Result<()> {
        // From less than a lease to more than a call may take.
        let span = Duration::from_millis(rng.random_range(50..900));
        match self {
            Self::Kill => {
                on.kill()?;
                // Here, not later: calls that arrive from now on reach the next server.
                history.blow(self.name())?;
                return on.restart();
            }
            Self::Pause => on.pause(span)?,
            Self::FlushScripts => on.flush_scripts()?,
            Self::Cut => on.cut(),
            Self::LoseReplies => on.lose_replies(REPLIES, span),
            Self::BlackHole => on.fault(Fault::BlackHole, span),
            Self::OneWay => on.fault(Fault::OneWay, span),
            Self::Hold => on.fault(Fault::Hold, span),
            Self::Slow => on.fault(Fault::Slow(span / 20), span),
            // New connections are refused: there must be some.
            Self::Refuse => {
                on.cut();
                on.fault(Fault::Refuse, span);
            }
        }
        history.blow(self.name())
    }
}
