//! The faults that a chaos run injects into a server and into the connections to it.

use std::time::Duration;

use anyhow::{Result, bail};
use rand::{RngExt, rngs::StdRng};
use semel_faults::Fault;
use semel_servers::{REDIS, TestServer, VALKEY};

use super::backend::Backend;
use crate::{
    event::{LEADER_KILL, SERVER_KILL},
    history::History,
};

/// How many replies [`ServerFault::LoseReplies`] loses.
const REPLIES: u32 = 3;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerFault {
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
    /// For clusters only.
    KillLeader,
}

impl ServerFault {
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

    /// Its name in the history.
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

    pub(super) fn fits(self, server: &TestServer) -> bool {
        self != Self::FlushScripts || server.name == REDIS.name || server.name == VALKEY.name
    }
}

/// The server that a fault is injected into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultTarget {
    Server,
    Front,
}

/// A fault and its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedFault {
    pub(super) target: FaultTarget,
    pub(super) fault: ServerFault,
}

impl PlannedFault {
    /// Its name in the history.
    pub(super) fn name(self) -> String {
        match self.target {
            FaultTarget::Server => self.fault.name().to_owned(),
            FaultTarget::Front => format!("front-{}", self.fault.name()),
        }
    }

    /// Injects the fault and writes it to the history.
    pub(super) fn inject(
        self,
        backend: &Backend,
        rng: &mut StdRng,
        history: &History,
    ) -> Result<()> {
        // From less than a lease to more than the call timeout.
        let span = Duration::from_millis(rng.random_range(50..900));
        if self.fault == ServerFault::KillLeader {
            backend.kill_leader(span)?;
            return history.record_fault(&self.name());
        }
        let server = backend.at(self.target)?;
        match self.fault {
            ServerFault::Kill => {
                server.kill()?;
                // Before the restart: calls that arrive after it reach the new server process.
                history.record_fault(&self.name())?;
                return server.restart();
            }
            ServerFault::Pause => server.pause(span)?,
            ServerFault::FlushScripts => server.flush_scripts()?,
            ServerFault::Cut => server.cut(),
            ServerFault::LoseReplies => server.lose_replies(REPLIES, span),
            ServerFault::BlackHole => server.fault(Fault::BlackHole, span),
            ServerFault::OneWay => server.fault(Fault::OneWay, span),
            ServerFault::Hold => server.fault(Fault::Hold, span),
            ServerFault::Slow => server.fault(Fault::Slow(span / 20), span),
            ServerFault::KillLeader => bail!("only a cluster has a leader"),
            // Cut first, so that clients have to open new connections.
            ServerFault::Refuse => {
                server.cut();
                server.fault(Fault::Refuse, span);
            }
        }
        history.record_fault(&self.name())
    }
}
