//! One state of the model.

use semel_core::{Record, Timestamp};

use crate::{
    config::{FaultLimits, ModelConfig, WORKERS},
    ledger::ModelLedger,
    rule::BrokenRules,
};

/// The number of late messages that can be under way at once.
pub(crate) const WIRE: usize = 2;

/// One state of the model: store, workers, messages, operator, and the ledger that judges them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorldState {
    pub(crate) now: u8,
    /// The record in the store.
    pub(crate) record: Option<Record>,
    pub(crate) workers: [ModelWorker; WORKERS],
    /// Sorted, so that two states with the same messages are equal.
    pub(crate) wire: [Option<LateMessage>; WIRE],
    /// The record that the operator read.
    pub(crate) operator_view: Option<OperatorView>,
    pub(crate) ledger: ModelLedger,
    pub(crate) left: FaultLimits,
    pub(crate) broken: BrokenRules,
}

/// A worker that wants the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModelWorker {
    pub(crate) calls_left: u8,
    pub(crate) stage: WorkerStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkerStage {
    Idle,
    /// Its claim was sent and not answered: it repeats the claim with the same nonce.
    Claiming {
        nonce: u8,
    },
    Owning(Owning),
}

/// What a worker knows about its claim. It does not notice when the claim is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owning {
    pub(crate) owner_id: OwnerId,
    /// The life of the record, and its number of reopenings, at the time of the grant. For the ledger only.
    pub(crate) life: u8,
    pub(crate) reopened: u8,
    /// The work may have had its effect.
    pub(crate) ran: bool,
    /// A verdict that was sent and not answered. It is sent again, or the claim is abandoned.
    pub(crate) verdict: Option<Verb>,
}

impl Owning {
    /// A worker does not start the work after it has sent a verdict.
    pub(crate) fn may_run_in(&self, life: u8) -> bool {
        self.life == life && self.verdict.is_none()
    }
}

/// The nonce and the token of an owner, as small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OwnerId {
    pub(crate) nonce: u8,
    pub(crate) token: u8,
}

/// A step that an owner can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    Renew,
    Complete,
    /// Release: the work had no effect.
    NoEffect,
    /// Release: the work may be tried again.
    Retry,
    Abandon,
}

/// A late request, whose sender no longer waits for this copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LateMessage {
    Claim { worker: u8, nonce: u8 },
    Owner { worker: u8, verb: Verb, owner_id: OwnerId },
}

/// What the operator read, and the number of the grant at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperatorView {
    pub(crate) nonce: Option<u8>,
    pub(crate) token: u8,
    pub(crate) grant: (u8, u8),
}

impl WorldState {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        Self {
            now: 0,
            record: None,
            workers: [ModelWorker { calls_left: config.calls, stage: WorkerStage::Idle }; WORKERS],
            wire: [None; WIRE],
            operator_view: None,
            ledger: ModelLedger::default(),
            left: config.limits,
            broken: BrokenRules::default(),
        }
    }

    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now.into())
    }

    /// The record as every step sees it: `None` when it has expired (T0).
    pub(crate) fn live(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| !record.is_expired(self.time()))
    }

    pub(crate) fn owning(&mut self, worker: usize) -> Option<&mut Owning> {
        match &mut self.workers[worker].stage {
            WorkerStage::Owning(owning) => Some(owning),
            WorkerStage::Idle | WorkerStage::Claiming { .. } => None,
        }
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = (usize, &Owning)> {
        self.workers.iter().enumerate().filter_map(|(index, worker)| match &worker.stage {
            WorkerStage::Owning(owning) => Some((index, owning)),
            WorkerStage::Idle | WorkerStage::Claiming { .. } => None,
        })
    }

    /// Adds a late message. False when there are too many.
    pub(crate) fn post(&mut self, message: LateMessage) -> bool {
        let Some(place) = self.wire.iter_mut().find(|place| place.is_none()) else { return false };
        *place = Some(message);
        self.wire.sort_unstable();
        true
    }

    /// Takes a late message out.
    pub(crate) fn take(&mut self, place: usize) -> Option<LateMessage> {
        let message = self.wire[place].take();
        self.wire.sort_unstable();
        message
    }
}
