//! What can happen next.

use semel_core::{Record, State};

use crate::{
    Config,
    world::{Owning, Stage, Verb, WIRE, World},
};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A worker asks for the key.
    Claim(usize, Delivery),
    /// A worker does its work, and with it the effect.
    Run(usize),
    /// An owner asks something of the store.
    Owner(usize, Verb, Delivery),
    /// A worker forgets everything.
    Crash(usize),
    /// A message that nobody waits for reaches the store.
    Arrive(usize),
    /// The operator looks at a stuck key.
    Look,
    /// The operator decides what it looked at.
    Decide(Choice),
    /// The operator erases.
    Erase,
    /// The operator forgets.
    Forget,
    /// Cleanup comes by.
    Purge,
    /// The store loses the record.
    Lose,
}

/// What becomes of a message and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Both arrive.
    Answered,
    /// The step happens, the answer is lost.
    Unanswered,
    /// The message stays on its way.
    Late,
}

/// What the operator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// It is done, with the operator's outcome.
    Complete,
    /// It may run again.
    Reopen,
    /// It may run again, and nothing has happened.
    ReopenClean,
}

pub(crate) fn possible(config: &Config, world: &World, actions: &mut Vec<Action>) {
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

fn of_worker(world: &World, worker: usize, actions: &mut Vec<Action>) {
    let state = &world.workers[worker];
    match &state.stage {
        Stage::Idle if state.calls_left == 0 => return,
        Stage::Idle | Stage::Asking { .. } => {
            actions.extend(deliveries(world).map(|way| Action::Claim(worker, way)));
        }
        Stage::Owning(owning) => {
            actions
                .extend((!owning.ran && owning.verdict.is_none()).then_some(Action::Run(worker)));
            for verb in verbs(owning) {
                actions.extend(deliveries(world).map(|way| Action::Owner(worker, *verb, way)));
            }
        }
    }
    let busy = state.stage != Stage::Idle;
    actions.extend((busy && world.left.crashes > 0).then_some(Action::Crash(worker)));
}

/// What an owner may want. A verdict that was sent once is not replaced by another, but one may give up.
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

fn deliveries(world: &World) -> impl Iterator<Item = Delivery> {
    let lost = (world.left.lost_replies > 0).then_some(Delivery::Unanswered);
    let late = (world.left.late_messages > 0).then_some(Delivery::Late);
    [Some(Delivery::Answered), lost, late].into_iter().flatten()
}

fn of_operator(world: &World, actions: &mut Vec<Action>) {
    if world.left.decisions > 0 {
        let stuck = world.live().is_some_and(|record| is_stuck(world, record));
        actions.extend(stuck.then_some(Action::Look));
        if world.desk.is_some() {
            actions.extend([Choice::Complete, Choice::Reopen].map(Action::Decide));
            // An operator who attests something false is believed; that is not the protocol's fault.
            let clean = world.ledger.is_clean(world);
            actions.extend(clean.then_some(Action::Decide(Choice::ReopenClean)));
        }
    }
    actions.extend((world.left.erasures > 0).then_some(Action::Erase));
    actions.extend((world.left.forgettings > 0).then_some(Action::Forget));
}

pub(crate) fn is_stuck(world: &World, record: &Record) -> bool {
    match record.state {
        State::Unknown | State::Dead => true,
        State::InProgress => !record.is_leased(world.time()),
        State::Open | State::Completed | State::Erased => false,
    }
}
