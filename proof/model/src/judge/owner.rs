//! Judges the steps of owners (T6–T9).

use semel_core::{Abandonment, Completion, Release, Renewal, State};
use semel_planted_bugs::StepReply;

use super::record;
use crate::{
    Protocol, ProtocolRule,
    config::MAX_RUN,
    ledger::{KeyStatus, LedgerPhase},
    world::{OwnerId, Verb, WorldState},
};

impl Protocol {
    pub(super) fn judge_owner(
        &self,
        world: &mut WorldState,
        verb: Verb,
        owner_id: OwnerId,
        answer: &StepReply,
    ) {
        if *answer == StepReply::Complete(Completion::Recorded) {
            let stored = world.live().filter(|record| record.state == State::Completed);
            let outcome = stored.and_then(|record| record.outcome.as_ref());
            let own = outcome == Some(self.outcome(owner_id.nonce));
            world.require(ProtocolRule::RecordedIsStored, own);
        }
        let Some(it) = world.ledger.status.filter(|it| it.is_owner(owner_id)) else {
            return world.require(ProtocolRule::SupersededChangesNothing, !is_accepted(answer));
        };
        match answer {
            StepReply::Renew(answer) => self.judge_renewal(world, it, *answer),
            StepReply::Complete(answer) => self.judge_completion(world, it, answer),
            StepReply::Release(answer) => self.judge_release(world, it, verb, answer),
            StepReply::Abandon(answer) => self.judge_abandonment(world, it, answer),
            other => unreachable!("an owner was answered {other:?}"),
        }
    }

    fn judge_renewal(&self, world: &mut WorldState, mut it: KeyStatus, answer: Renewal) {
        let in_time = world.now - it.granted_at < MAX_RUN;
        match answer {
            Renewal::Extended => {
                world.require(ProtocolRule::AbandonedIsFinal, it.phase != LedgerPhase::Abandoned);
                world.require(ProtocolRule::StateFollowsTable, it.phase.is_in_progress());
                world.require(ProtocolRule::MaxRunEnds, in_time);
                it.arm(world.now, &world.ledger.life(), self.client_of(&it));
                world.ledger.status = Some(it);
            }
            Renewal::Lost => {
                world.require(
                    ProtocolRule::OwnerIsAccepted,
                    it.phase != LedgerPhase::Owned || !in_time,
                );
            }
        }
    }

    fn judge_completion(&self, world: &mut WorldState, mut it: KeyStatus, answer: &Completion) {
        let completable = it.phase.is_completable();
        if *answer != Completion::Recorded {
            return world.require(ProtocolRule::OwnerIsAccepted, !completable);
        }
        world.require(
            ProtocolRule::StateFollowsTable,
            completable || it.phase == LedgerPhase::Completed,
        );
        if completable {
            let client = self.client_of(&it);
            let keep = if client.fails { client.failure_retention } else { client.retention };
            it.end(LedgerPhase::Completed, Some(world.now + keep));
            world.ledger.status = Some(it);
            record(world, it.owner_id.nonce);
        }
    }

    fn judge_release(
        &self,
        world: &mut WorldState,
        mut it: KeyStatus,
        verb: Verb,
        answer: &Release,
    ) {
        let no_effect = verb == Verb::NoEffect;
        let in_progress = it.phase.is_in_progress();
        match answer {
            Release::Open => {
                let held = it.phase == LedgerPhase::Unknown && no_effect;
                world.require(ProtocolRule::StateFollowsTable, in_progress || held);
                if no_effect {
                    it.pinned = 0;
                }
                it.end(LedgerPhase::Released, Some(world.now + self.client_of(&it).retention));
            }
            Release::Unknown => {
                let on_hold = world.ledger.life().on_hold;
                world
                    .require(ProtocolRule::StateFollowsTable, in_progress && on_hold && !no_effect);
                it.end(LedgerPhase::Unknown, None);
            }
            Release::Superseded(_) | Release::Missing => {
                let held = it.phase == LedgerPhase::Unknown && no_effect;
                world.require(ProtocolRule::OwnerIsAccepted, !in_progress && !held);
            }
        }
        world.ledger.status = Some(it);
    }

    fn judge_abandonment(&self, world: &mut WorldState, mut it: KeyStatus, answer: &Abandonment) {
        let life = world.ledger.life();
        let in_progress = it.phase.is_in_progress();
        match answer {
            Abandonment::Lapsing => {
                world.require(ProtocolRule::StateFollowsTable, in_progress && !life.on_hold);
                it.back_off(world.now, &life, self.client_of(&it));
            }
            Abandonment::Unknown => {
                world.require(ProtocolRule::StateFollowsTable, in_progress && life.on_hold);
                it.end(LedgerPhase::Unknown, None);
            }
            Abandonment::Superseded(_) | Abandonment::Missing => {
                world.require(ProtocolRule::OwnerIsAccepted, !in_progress);
            }
        }
        world.ledger.status = Some(it);
    }
}

/// True when the reply says that the store did what the owner requested.
const fn is_accepted(answer: &StepReply) -> bool {
    matches!(
        answer,
        StepReply::Renew(Renewal::Extended)
            | StepReply::Complete(Completion::Recorded)
            | StepReply::Release(Release::Open | Release::Unknown)
            | StepReply::Abandon(Abandonment::Lapsing | Abandonment::Unknown)
    )
}
