//! Judges the steps of operators and purges (T10–T13).

use super::record;
use crate::{
    Protocol, ProtocolRule,
    action::OperatorChoice,
    ledger::LedgerPhase,
    request::OPERATOR,
    world::{OperatorView, WorldState},
};

impl Protocol {
    pub(super) fn judge_decision(
        &self,
        world: &mut WorldState,
        look: OperatorView,
        choice: OperatorChoice,
    ) {
        let Some(mut it) = world.ledger.status else {
            return world.require(ProtocolRule::KeptInTime, false);
        };
        // A claim that arrived in two lives of the record is one claim to operators and workers.
        let same = look.nonce == Some(it.owner_id.nonce);
        world.require(
            ProtocolRule::DecisionFitsTheClaim,
            same || world.ledger.grant_number() == look.grant,
        );
        let lapsed = it.phase.is_in_progress() && it.is_silent(world.now);
        let stuck = matches!(it.phase, LedgerPhase::Unknown | LedgerPhase::Dead) || lapsed;
        world.require(ProtocolRule::NoEarlyTakeover, stuck || !it.phase.is_in_progress());
        world.require(ProtocolRule::StateFollowsTable, stuck);
        it.disowned = true;
        let expires_at = Some(world.now + self.client_of(&it).retention);
        match choice {
            OperatorChoice::Complete => {
                it.end(LedgerPhase::Completed, expires_at);
                record(world, OPERATOR);
            }
            OperatorChoice::Reopen => {
                it.end(LedgerPhase::Released, expires_at);
                world.ledger.reopen();
            }
            OperatorChoice::ReopenClean => {
                it.pinned = 0;
                it.end(LedgerPhase::Released, expires_at);
                world.ledger.reopen();
            }
        }
        world.ledger.status = Some(it);
    }

    pub(super) fn judge_erasure(&self, world: &mut WorldState) {
        let Some(mut it) = world.ledger.status else {
            return world.require(ProtocolRule::KeptInTime, false);
        };
        (it.disowned, it.pinned) = (true, 0);
        it.end(LedgerPhase::Erased, Some(world.now + self.client_of(&it).retention));
        world.ledger.status = Some(it);
    }
}

pub(super) fn judge_forgetting(world: &mut WorldState) {
    let decided =
        |phase| matches!(phase, LedgerPhase::Completed | LedgerPhase::Dead | LedgerPhase::Released);
    let status = world.ledger.status.take();
    world.require(ProtocolRule::ForgetRefusesUndecided, status.is_some_and(|it| decided(it.phase)));
}

impl Protocol {
    /// The purge changed or deleted the record.
    pub(super) fn judge_purge(&self, world: &mut WorldState) {
        let Some(mut it) = world.ledger.status else { return };
        let lapsed = it.phase.is_in_progress() && it.is_silent(world.now);
        let held = lapsed && world.ledger.life().on_hold;
        world.require(ProtocolRule::PurgeDeletesOnlyExpired, held && world.record.is_some());
        if !held {
            return;
        }
        if it.is_lost(world.now) {
            it.end(LedgerPhase::Unknown, None);
        } else {
            it.contest(world.now, &world.ledger.life(), self.client_of(&it));
        }
        world.ledger.status = Some(it);
    }
}
