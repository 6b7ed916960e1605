//! What can happen to a server and to the way there.

use std::time::Duration;

use anyhow::{Result, bail};
use rand::{RngExt, rngs::StdRng};
use semel_faults::Fault;
use semel_servers::{REDIS, Server, VALKEY};

use super::backend::Backend;
use crate::{
    event::{LEADER_KILL, SERVER_KILL},
    history::History,
};

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
    /// Only a cluster has one.
    KillLeader,
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
            Self::KillLeader => LEADER_KILL,
        }
    }

    pub(super) fn fits(self, server: &Server) -> bool {
        self != Self::FlushScripts || server.name == REDIS.name || server.name == VALKEY.name
    }
}

/// Which of a storm's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Server,
    Front,
}

/// A blow, and where it falls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strike {
    pub(super) place: Place,
    pub(super) blow: Blow,
}

impl Strike {
    /// What the history calls it.
    pub(super) fn name(self) -> String {
        match self.place {
            Place::Server => self.blow.name().to_owned(),
            Place::Front => format!("front-{}", self.blow.name()),
        }
    }

    /// Does it, and writes down that it was done.
    pub(super) fn fall(self, on: &Backend, rng: &mut StdRng, history: &History) -> Result<()> {
        // From less than a lease to more than a call may take.
        let span = Duration::from_millis(rng.random_range(50..900));
        if self.blow == Blow::KillLeader {
            on.kill_leader(span)?;
            return history.blow(&self.name());
        }
        let on = on.at(self.place)?;
        match self.blow {
            Blow::Kill => {
                on.kill()?;
                // Here, not later: calls that arrive from now on reach the next server.
                history.blow(&self.name())?;
                return on.restart();
            }
            Blow::Pause => on.pause(span)?,
            Blow::FlushScripts => on.flush_scripts()?,
            Blow::Cut => on.cut(),
            Blow::LoseReplies => on.lose_replies(REPLIES, span),
            Blow::BlackHole => on.fault(Fault::BlackHole, span),
            Blow::OneWay => on.fault(Fault::OneWay, span),
            Blow::Hold => on.fault(Fault::Hold, span),
            Blow::Slow => on.fault(Fault::Slow(span / 20), span),
            Blow::KillLeader => bail!("one server is no cluster"),
            // New connections are refused: there must be some.
            Blow::Refuse => {
                on.cut();
                on.fault(Fault::Refuse, span);
            }
        }
        history.blow(&self.name())
    }
}
