//! I16: a run in which nothing happened proves nothing.

use std::{collections::HashSet, fmt};

use super::{Evidence, Violation, invariant::Invariant::I16};
use crate::{
    event::{Answer, Event, FRONT_KILL, Kind, LEADER_KILL, Op, SERVER_KILL},
    ledger::What,
};

macro_rules! counted {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened in a run, in numbers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        /// The least that must have happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Floor { $($(#[$doc])* pub $name: u64,)* }

        impl Floor {
            const NOTHING: Self = Self { $($name: 0,)* };

            /// I16: everything happened often enough.
            pub(super) fn check(&self, counts: &Counts) -> Vec<Violation> {
                let mut short = Vec::new();
                $(if counts.$name < self.$name {
                    let name = stringify!($name).replace('_', " ");
                    short.push(format!("{name}: {} of at least {}", counts.$name, self.$name));
                })*
                short.into_iter().map(|what| Violation::new(I16, None, what)).collect()
            }
        }

        impl fmt::Display for Counts {
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
    /// Of these, at a named point.
    point_kills,
    /// Calls of clients.
    calls,
    /// Calls without an answer.
    open_calls,
    /// Effects in the ledger.
    effects,
    /// Grants after a lost owner.
    takeovers,
    /// Outcomes answered again.
    replays,
    /// Calls told that somebody else owns the key.
    busy,
    /// Calls for something else than the key stands for.
    mismatches,
    /// Owners told that they were replaced.
    superseded,
    /// Callers told that nobody knows.
    unknown,
    /// Keys out of attempts.
    dead,
    /// Cleanups.
    purges,
    /// Keys forgotten by an operator.
    forgotten,
    /// Keys erased by an operator.
    erased,
    /// Servers killed.
    server_kills,
    /// Servers that stood still.
    server_pauses,
    /// What happened to connections.
    network_faults,
    /// Caches of scripts that were emptied.
    script_flushes,
    /// Servers killed that decide nothing.
    front_kills,
    /// Leaders of a cluster killed.
    leader_kills,
}

impl Floor {
    /// A tenth of what so many kills bring about on two busy cores, less of what is rare: a slower
    /// machine must pass, an idle one must not.
    #[must_use]
    pub const fn after(kills: u32) -> Self {
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

    /// Over a server that is away for half of the time: what the harness itself does in full, and of
    /// the rest as much as comes about between two blows, each of which waits for thirty claims.
    #[must_use]
    pub fn through(kills: u32, each_blow: u64, kinds: impl Fn(&str) -> u64) -> Self {
        let kills = u64::from(kills);
        Self {
            kills,
            calls: kills,
            open_calls: kills,
            effects: kills,
            takeovers: kills / 8,
            replays: kills / 2,
            busy: kills / 4,
            // Somebody leads: a store on which nobody ever does cleans up nothing.
            purges: 1,
            server_kills: each_blow * kinds(SERVER_KILL),
            server_pauses: each_blow * kinds("server-pause"),
            network_faults: each_blow * kinds("cut") * 7,
            script_flushes: each_blow * kinds("script-flush"),
            front_kills: each_blow * kinds(FRONT_KILL),
            leader_kills: each_blow * kinds(LEADER_KILL),
            ..Self::NOTHING
        }
    }

    /// The same of so many calls in a worker that nobody kills.
    #[must_use]
    pub const fn calm(calls: u64) -> Self {
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

impl Counts {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let effects = evidence.ledger.iter().filter(|entry| entry.what == What::Effect).count();
        let mut counts = Self { effects: effects as u64, ..Self::default() };
        let mut stopped = HashSet::new();
        for event in &evidence.events {
            counts.add(event, &mut stopped);
        }
        counts
    }

    fn add(&mut self, event: &Event, stopped: &mut HashSet<u32>) {
        match (event.op, event.r#type) {
            (Op::Exit, Kind::Info) => {
                self.kills += 1;
                self.point_kills += u64::from(stopped.contains(&event.process));
            }
            (Op::Blow, _) => self.blow(event.detail.point.as_deref().unwrap_or_default()),
            (Op::Point, _) => drop(stopped.insert(event.process)),
            (Op::Run, Kind::Invoke) => self.calls += 1,
            (Op::Purge, Kind::Ok) => self.purges += 1,
            (Op::Purge, _) => {}
            (_, Kind::Info) => self.open_calls += 1,
            (_, Kind::Ok | Kind::Fail) => self.answered(event),
            (_, Kind::Invoke) => {}
        }
    }

    fn blow(&mut self, what: &str) {
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
        match (event.op, detail.answer) {
            (Op::Run, Some(Answer::Done)) => self.replays += u64::from(detail.replayed),
            (Op::Run | Op::Claim, Some(Answer::Busy)) => self.busy += 1,
            (Op::Run, Some(Answer::Mismatch)) => self.mismatches += 1,
            (Op::Run, Some(Answer::Unknown)) => self.unknown += 1,
            (_, Some(Answer::Superseded)) => self.superseded += 1,
            (Op::Run, Some(Answer::Dead)) => self.dead += 1,
            (Op::Forget, Some(Answer::Forgotten)) => self.forgotten += 1,
            (Op::Erase, Some(Answer::Erased)) => self.erased += 1,
            _ => {}
        }
    }
}
