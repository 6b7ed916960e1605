//! I16: the least that must happen in a run, because a run in which nothing happened proves nothing.

use std::{collections::HashSet, fmt};

use super::{Evidence, Violation, invariant::Invariant::I16};
use crate::{
    event::{Event, EventKind, FRONT_KILL, LEADER_KILL, Op, ReplyKind, SERVER_KILL},
    ledger::LedgerFact,
};

macro_rules! counted {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened in a run.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ChaosCounts { $($(#[$doc])* pub $name: u64,)* }

        /// How often each thing must have happened at least.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Floor { $($(#[$doc])* pub $name: u64,)* }

        impl Floor {
            const NOTHING: Self = Self { $($name: 0,)* };

            /// I16: everything happened often enough.
            pub(super) fn check(&self, counts: &ChaosCounts) -> Vec<Violation> {
                let mut short = Vec::new();
                $(if counts.$name < self.$name {
                    let name = stringify!($name).replace('_', " ");
                    short.push(format!("{name}: {} of at least {}", counts.$name, self.$name));
                })*
                short.into_iter().map(|what| Violation::new(I16, None, what)).collect()
            }
        }

        impl fmt::Display for ChaosCounts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, "{}: {}  ", stringify!($name).replace('_', " "), self.$name)?;)*
                Ok(())
            }
        }
    };
}

counted! {
    /// Processes killed.
    kills,
    /// Processes killed at a kill point.
    point_kills,
    /// Calls of clients.
    calls,
    /// Calls without a reply.
    open_calls,
    /// Effects in the ledger.
    effects,
    /// Grants after a lost owner.
    takeovers,
    /// Outcomes replayed.
    replays,
    /// Calls answered Busy.
    busy,
    /// Calls answered Mismatch.
    mismatches,
    /// Steps answered Superseded.
    superseded,
    /// Calls answered Unknown.
    unknown,
    /// Calls answered Dead.
    dead,
    /// Purges.
    purges,
    /// Keys forgotten by an operator.
    forgotten,
    /// Keys erased by an operator.
    erased,
    /// Servers killed.
    server_kills,
    /// Servers paused.
    server_pauses,
    /// Faults of connections.
    network_faults,
    /// Script caches flushed.
    script_flushes,
    /// Fronts of an arbiter killed.
    front_kills,
    /// Leaders of a cluster killed.
    leader_kills,
}

impl Floor {
    /// A tenth of what this many kills cause on two busy cores, and less of what is rare. A slow machine passes, a run
    /// without load does not.
    #[must_use]
    pub const fn with_kills(kills: u32) -> Self {
        let kills = kills as u64;
        Self {
            kills,
            point_kills: kills / 20,
            calls: kills * 10,
            open_calls: kills,
            effects: kills * 3 / 2,
            takeovers: kills / 3,
            replays: kills * 5,
            busy: kills,
            mismatches: kills / 2,
            superseded: kills / 200,
            unknown: kills / 2,
            dead: kills / 40,
            purges: kills / 3,
            forgotten: kills / 8,
            erased: kills / 20,
            ..Self::NOTHING
        }
    }

    /// For a server that is down for half of the time: all kills and faults of the harness, and of the rest as much as
    /// happens between two faults, each of which waits for thirty answered claims.
    #[must_use]
    pub fn with_server_faults(kills: u32, each_fault: u64, kinds: impl Fn(&str) -> u64) -> Self {
        let kills = u64::from(kills);
        Self {
            kills,
            calls: kills,
            open_calls: kills,
            effects: kills,
            takeovers: kills / 8,
            replays: kills / 2,
            busy: kills / 4,
            // A node must have been elected for maintenance: without one nothing is purged.
            purges: 1,
            server_kills: each_fault * kinds(SERVER_KILL),
            server_pauses: each_fault * kinds("server-pause"),
            network_faults: each_fault * kinds("cut") * 7,
            script_flushes: each_fault * kinds("script-flush"),
            front_kills: each_fault * kinds(FRONT_KILL),
            leader_kills: each_fault * kinds(LEADER_KILL),
            ..Self::NOTHING
        }
    }

    /// For a worker that makes this many calls and is not killed.
    #[must_use]
    pub const fn without_kills(calls: u64) -> Self {
        Self {
            kills: 0,
            point_kills: 0,
            calls,
            open_calls: 0,
            effects: calls / 80,
            takeovers: 0,
            replays: calls / 10,
            busy: calls / 300,
            mismatches: calls / 100,
            superseded: 0,
            unknown: calls / 500,
            dead: 0,
            purges: calls / 1_000,
            forgotten: calls / 1_500,
            erased: 0,
            ..Self::NOTHING
        }
    }
}

impl ChaosCounts {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let effects =
            evidence.ledger.iter().filter(|entry| entry.fact == LedgerFact::Effect).count();
        let mut counts = Self { effects: effects as u64, ..Self::default() };
        let mut stopped = HashSet::new();
        for event in &evidence.events {
            counts.add(event, &mut stopped);
        }
        counts
    }

    fn add(&mut self, event: &Event, stopped: &mut HashSet<u32>) {
        match (event.op, event.r#type) {
            (Op::Exit, EventKind::Info) => {
                self.kills += 1;
                self.point_kills += u64::from(stopped.contains(&event.process));
            }
            (Op::Fault, _) => self.count_fault(event.detail.point.as_deref().unwrap_or_default()),
            (Op::Point, _) => drop(stopped.insert(event.process)),
            (Op::Run, EventKind::Invoke) => self.calls += 1,
            (Op::Purge, EventKind::Ok) => self.purges += 1,
            (Op::Purge, _) => {}
            (_, EventKind::Info) => self.open_calls += 1,
            (_, EventKind::Ok | EventKind::Fail) => self.answered(event),
            (_, EventKind::Invoke) => {}
        }
    }

    fn count_fault(&mut self, what: &str) {
        match what {
            SERVER_KILL => self.server_kills += 1,
            "server-pause" => self.server_pauses += 1,
            "script-flush" => self.script_flushes += 1,
            FRONT_KILL => self.front_kills += 1,
            LEADER_KILL => self.leader_kills += 1,
            _ => self.network_faults += 1,
        }
    }

    fn answered(&mut self, event: &Event) {
        let detail = &event.detail;
        self.takeovers += u64::from(detail.takeover);
        match (event.op, detail.reply) {
            (Op::Run, Some(ReplyKind::Done)) => self.replays += u64::from(detail.replayed),
            (Op::Run | Op::Claim, Some(ReplyKind::Busy)) => self.busy += 1,
            (Op::Run, Some(ReplyKind::Mismatch)) => self.mismatches += 1,
            (Op::Run, Some(ReplyKind::Unknown)) => self.unknown += 1,
            (_, Some(ReplyKind::Superseded)) => self.superseded += 1,
            (Op::Run, Some(ReplyKind::Dead)) => self.dead += 1,
            (Op::Forget, Some(ReplyKind::Forgotten)) => self.forgotten += 1,
            (Op::Erase, Some(ReplyKind::Erased)) => self.erased += 1,
            _ => {}
        }
    }
}
