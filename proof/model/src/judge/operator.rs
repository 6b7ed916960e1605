//! T10–T13.

use super::record;
use crate::{
    Protocol, Rule,
    action::Choice,
    ledger::Phase,
    request::OPERATOR,
    world::{Look, World},
};

impl Protocol {
    pub(super) fn judge_decision(&self, world: &mut World, look: Look, choice: Choice) {
        let Some(mut it) = world.ledger.standing else {
            return world.require(Rule::KeptInTime, false);
        };
        // A claim call that came twice, in two lives of the record, is one claim to everybody.
        let same = look.nonce == Some(it.pair.nonce);
        world.require(Rule::DecidesWhatWasSeen, same || world.ledger.grant_number() == look.grant);
        let lapsed = it.phase.is_in_progress() && it.is_silent(world.now);
        let stuck = matches!(it.phase, Phase::Unknown | Phase::Dead) || lapsed;
        world.require(Rule::NoEarlyTakeover, stuck || !it.phase.is_in_progress());
        world.require(Rule::EndsStay, stuck);
        it.disowned = true;
        let expires_at = Some(world.now + self.owner_of(&it).retention);
        match choice {
            Choice::Complete => {
                it.end(Phase::Completed, expires_at);
                record(world, OPERATOR);
            }
            Choice::Reopen => {
                it.end(Phase::Released, expires_at);
                world.ledger.reopen();
            }
            Choice::ReopenClean => {
                it.pinned = 0;
                it.end(Phase::Released, expires_at);
                world.ledger.reopen();
            }
        }
        world.ledger.standing = Some(it);
    }

    pub(super) fn judge_erasure(&self, world: &mut World) {
        let Some(mut it) = world.ledger.standing else {
            return world.require(Rule::KeptInTime, false);
        };
        (it.disowned, it.pinned) = (true, 0);
        it.end(Phase::Erased, Some(world.now + self.owner_of(&it).retention));
        world.ledger.standing = Some(it);
    }
}

pub(super) fn judge_forgetting(world: &mut World) {
    let decided = |phase| matches!(phase, Phase::Completed | Phase::Dead | Phase::Released);
    let standing = world.ledger.standing.take();
    world.require(Rule::ForgetSparesTheUndecided, standing.is_some_and(|it| decided(it.phase)));
}

/// The record changed, or is gone.
pub(super) fn judge_purge(world: &mut World) {
    let Some(mut it) = world.ledger.standing else { return };
    let lapsed = it.phase.is_in_progress() && it.is_silent(world.now);
    let lost = lapsed && world.ledger.life().on_hold;
    world.require(Rule::PurgeSparesTheLiving, lost && world.record.is_some());
    if lost {
        it.end(Phase::Unknown, None);
        world.ledger.standing = Some(it);
    }
}
