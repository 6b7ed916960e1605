//! I16: a run in which nothing happened proves nothing.

use std::{collections::HashSet, fmt};

use super::{Evidence, Violation, invariant::Invariant::I16};
use crate::{
    event::{Answer, Event, Kind, Op},
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
    /// Owners told that they were replaced, and callers told that nobody knows.
    superseded_or_unknown,
    /// Keys out of attempts.
    dead,
    /// Cleanups.
    purges,
}

impl Floor {
    /// What so many kills bring about, with room to spare.
    #[must_use]
    pub const fn after(kills: u32) -> Self {
        let kills = kills as u64;
        Self {
            kills,
            point_kills: kills / 20,
            calls: kills * 10,
            open_calls: kills / 2,
            effects: kills,
            takeovers: kills / 10,
            replays: kills,
            busy: kills / 10,
            mismatches: kills / 2,
            superseded_or_unknown: kills / 4,
            dead: 0,
            purges: kills / 2,
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
            (Op::Point, _) => drop(stopped.insert(event.process)),
            (Op::Run, Kind::Invoke) => self.calls += 1,
            (Op::Purge, Kind::Ok) => self.purges += 1,
            (Op::Purge, _) => {}
            (_, Kind::Info) => self.open_calls += 1,
            (_, Kind::Ok | Kind::Fail) => self.answered(event),
            (_, Kind::Invoke) => {}
        }
    }

    fn answered(&mut self, event: &Event) {
        let detail = &event.detail;
        self.takeovers += u64::from(detail.takeover);
        match (event.op, detail.answer) {
            (Op::Run, Some(Answer::Done)) => self.replays += u64::from(detail.replayed),
            (Op::Run | Op::Claim, Some(Answer::Busy)) => self.busy += 1,
            (Op::Run, Some(Answer::Mismatch)) => self.mismatches += 1,
            (Op::Run, Some(Answer::Unknown)) | (_, Some(Answer::Superseded)) => {
                self.superseded_or_unknown += 1;
            }
            (Op::Run, Some(Answer::Dead)) => self.dead += 1,
            _ => {}
        }
    }
}
