//! The actions that are possible in a state.

use semel_core::{Record, State};

use crate::{
    ModelConfig,
    world::{Owning, Verb, WIRE, WorkerStage, WorldState},
};

/// One action of a worker, a message, the operator, the store or the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// One tick passes.
    Tick,
    /// A worker claims the key.
    Claim(usize, MessageDelivery),
    /// A worker does its work, and with it the effect.
    Run(usize),
    /// An owner sends a step to the store.
    Owner(usize, Verb, MessageDelivery),
    /// A worker crashes and loses its memory.
    Crash(usize),
    /// A late message reaches the store.
    Arrive(usize),
    /// The operator reads a stuck key.
    Look,
    /// The operator decides about the key that it read.
    Decide(OperatorChoice),
    /// The operator erases the key.
    Erase,
    /// The operator forgets the key.
    Forget,
    /// The store purges.
    Purge,
    /// The store loses the record.
    Lose,
}

/// Whether a message and its reply arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageDelivery {
    /// Both arrive.
    Answered,
    /// The step happens, the reply is lost.
    Unanswered,
    /// The message arrives later, or never.
    Late,
}

/// A decision of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorChoice {
    /// The operation is done, with the operator's outcome.
    Complete,
    /// The work may run again.
    Reopen,
    /// The work may run again, and nothing has happened before.
    ReopenClean,
}

pub(crate) fn possible(config: &ModelConfig, world: &WorldState, actions: &mut Vec<Action>) {
    let left = &world.left;
    actions.extend((world.now < config.ticks).then_some(Action::Tick));
    for worker in 0..world.workers.len() {
        of_worker(world, worker, actions);
    }
    actions.extend((0..WIRE).filter(|n| world.wire[*n].is_some()).map(Action::Arrive));
    of_operator(world, actions);
    if world.record.is_some() {
        actions.extend(config.purge.then_some(Action::Purge));
        actions.extend((left.losses > 0).then_some(Action::Lose));
    }
}

fn of_worker(world: &WorldState, worker: usize, actions: &mut Vec<Action>) {
    let state = &world.workers[worker];
    match &state.stage {
        WorkerStage::Idle if state.calls_left == 0 => return,
        WorkerStage::Idle | WorkerStage::Claiming { .. } => {
            actions.extend(deliveries(world).map(|delivery| Action::Claim(worker, delivery)));
        }
        WorkerStage::Owning(owning) => {
            actions
                .extend((!owning.ran && owning.verdict.is_none()).then_some(Action::Run(worker)));
            for verb in verbs(owning) {
                actions.extend(
                    deliveries(world).map(|delivery| Action::Owner(worker, *verb, delivery)),
                );
            }
        }
    }
    let busy = state.stage != WorkerStage::Idle;
    actions.extend((busy && world.left.crashes > 0).then_some(Action::Crash(worker)));
}

/// The steps that an owner may send. A verdict that was sent once is not replaced by another, except by abandoning.
const fn verbs(owning: &Owning) -> &'static [Verb] {
    match owning.verdict {
        None if owning.ran => &[Verb::Renew, Verb::Complete, Verb::Retry, Verb::Abandon],
        None => &[Verb::Renew, Verb::NoEffect, Verb::Retry, Verb::Abandon],
        Some(Verb::Complete) => &[Verb::Renew, Verb::Complete, Verb::Abandon],
        Some(Verb::NoEffect) => &[Verb::Renew, Verb::NoEffect, Verb::Abandon],
        Some(Verb::Retry) => &[Verb::Renew, Verb::Retry, Verb::Abandon],
        Some(Verb::Abandon | Verb::Renew) => &[Verb::Renew, Verb::Abandon],
    }
}

fn deliveries(world: &WorldState) -> impl Iterator<Item = MessageDelivery> {
    let lost = (world.left.lost_replies > 0).then_some(MessageDelivery::Unanswered);
    let late = (world.left.late_messages > 0).then_some(MessageDelivery::Late);
    [Some(MessageDelivery::Answered), lost, late].into_iter().flatten()
}

fn of_operator(world: &WorldState, actions: &mut Vec<Action>) {
    if world.left.decisions > 0 {
        let stuck = world.live().is_some_and(|record| is_stuck(world, record));
        actions.extend(stuck.then_some(Action::Look));
        if world.operator_view.is_some() {
            actions.extend([OperatorChoice::Complete, OperatorChoice::Reopen].map(Action::Decide));
            // The protocol trusts what an operator attests, so the model lets it attest only what is true.
            let clean = world.ledger.is_clean(world);
            actions.extend(clean.then_some(Action::Decide(OperatorChoice::ReopenClean)));
        }
    }
    actions.extend((world.left.erasures > 0).then_some(Action::Erase));
    actions.extend((world.left.forgettings > 0).then_some(Action::Forget));
}

pub(crate) fn is_stuck(world: &WorldState, record: &Record) -> bool {
    match record.state {
        State::Unknown | State::Dead => true,
        State::InProgress => !record.is_leased(world.time()),
        State::Open | State::Completed | State::Erased => false,
    }
}
