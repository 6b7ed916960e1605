//! One state of the world.

use semel_core::{Record, Timestamp};

use crate::{
    config::{Config, Limits, WORKERS},
    ledger::Ledger,
    rule::Broken,
};

/// Messages that can be on their way at once.
pub(crate) const WIRE: usize = 2;

/// Everything that is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) now: u8,
    /// What the store keeps.
    pub(crate) record: Option<Record>,
    pub(crate) workers: [Worker; WORKERS],
    /// In order, so that two worlds with the same messages are one.
    pub(crate) wire: [Option<Message>; WIRE],
    /// What the operator looked at.
    pub(crate) desk: Option<Look>,
    pub(crate) ledger: Ledger,
    pub(crate) left: Limits,
    pub(crate) broken: Broken,
}

/// Somebody who wants the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub(crate) calls_left: u8,
    pub(crate) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Idle,
    /// Its claim was sent and not answered: it repeats it with the same nonce.
    Asking {
        nonce: u8,
    },
    Owning(Owning),
}

/// What a worker knows about its claim. Nothing tells it that the claim is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owning {
    pub(crate) pair: Pair,
    /// In which life of the record, and after how many reopenings, it was granted. Only the ledger
    /// asks.
    pub(crate) life: u8,
    pub(crate) reopened: u8,
    /// The work may have had its effect.
    pub(crate) ran: bool,
    /// Sent and not answered: it is repeated, or the claim abandoned.
    pub(crate) verdict: Option<Verb>,
}

impl Owning {
    /// Nobody starts the work after having said how it ended.
    pub(crate) fn may_run_in(&self, life: u8) -> bool {
        self.life == life && self.verdict.is_none()
    }
}

/// Nonce and token, in numbers a reader can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) nonce: u8,
    pub(crate) token: u8,
}

/// What an owner can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    Renew,
    Complete,
    /// Release: nothing happened.
    NoEffect,
    /// Release: try again.
    Retry,
    Abandon,
}

/// A request on its way, whose sender no longer waits for this copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Claim { worker: u8, nonce: u8 },
    Owner { worker: u8, verb: Verb, pair: Pair },
}

/// What the operator saw, and which grant that really was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Look {
    pub(crate) nonce: Option<u8>,
    pub(crate) token: u8,
    pub(crate) grant: (u8, u8),
}

impl World {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            now: 0,
            record: None,
            workers: [Worker { calls_left: config.calls, stage: Stage::Idle }; WORKERS],
            wire: [None; WIRE],
            desk: None,
            ledger: Ledger::default(),
            left: config.limits,
            broken: Broken::default(),
        }
    }

    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now.into())
    }

    /// The record as every step sees it (T0).
    pub(crate) fn live(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| !record.is_expired(self.time()))
    }

    pub(crate) fn owning(&mut self, worker: usize) -> Option<&mut Owning> {
        match &mut self.workers[worker].stage {
            Stage::Owning(owning) => Some(owning),
            Stage::Idle | Stage::Asking { .. } => None,
        }
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = (usize, &Owning)> {
        self.workers.iter().enumerate().filter_map(|(index, worker)| match &worker.stage {
            Stage::Owning(owning) => Some((index, owning)),
            Stage::Idle | Stage::Asking { .. } => None,
        })
    }

    /// Puts a message on the wire; false when it is full.
    pub(crate) fn post(&mut self, message: Message) -> bool {
        let Some(place) = self.wire.iter_mut().find(|place| place.is_none()) else { return false };
        *place = Some(message);
        self.wire.sort_unstable();
        true
    }

    /// Takes a message off the wire.
    pub(crate) fn take(&mut self, place: usize) -> Option<Message> {
        let message = self.wire[place].take();
        self.wire.sort_unstable();
        message
    }
}
