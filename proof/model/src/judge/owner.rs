//! T6–T9.

use semel_core::{Abandonment, Completion, Release, Renewal, State};
use semel_planted_bugs::Answer;

use super::record;
use crate::{
    Protocol, Rule,
    config::MAX_RUN,
    ledger::{Phase, Standing},
    world::{Pair, Verb, World},
};

impl Protocol {
    pub(super) fn judge_owner(&self, world: &mut World, verb: Verb, pair: Pair, answer: &Answer) {
        if *answer == Answer::Complete(Completion::Recorded) {
            let stored = world.live().filter(|record| record.state == State::Completed);
            let outcome = stored.and_then(|record| record.outcome.as_ref());
            let own = outcome == Some(self.outcome(pair.nonce));
            world.require(Rule::RecordedIsStored, own);
        }
        let Some(it) = world.ledger.standing.filter(|it| it.is_owner(pair)) else {
            return world.require(Rule::StaleChangesNothing, !is_accepted(answer));
        };
        match answer {
            Answer::Renew(answer) => self.judge_renewal(world, it, *answer),
            Answer::Complete(answer) => self.judge_completion(world, it, answer),
            Answer::Release(answer) => self.judge_release(world, it, verb, answer),
            Answer::Abandon(answer) => self.judge_abandonment(world, it, answer),
            other => unreachable!("an owner was answered {other:?}"),
        }
    }

    fn judge_renewal(&self, world: &mut World, mut it: Standing, answer: Renewal) {
        let in_time = world.now - it.granted_at < MAX_RUN;
        match answer {
            Renewal::Extended => {
                world.require(Rule::AbandonedIsFinal, it.phase != Phase::Abandoned);
                world.require(Rule::EndsStay, it.phase.is_in_progress());
                world.require(Rule::MaxRunEnds, in_time);
                it.arm(world.now, &world.ledger.life(), self.owner_of(&it));
                world.ledger.standing = Some(it);
            }
            Renewal::Lost => {
                world.require(Rule::OwnerIsHeard, it.phase != Phase::Owned || !in_time);
            }
        }
    }

    fn judge_completion(&self, world: &mut World, mut it: Standing, answer: &Completion) {
        let completable = it.phase.is_completable();
        if *answer != Completion::Recorded {
            return world.require(Rule::OwnerIsHeard, !completable);
        }
        world.require(Rule::EndsStay, completable || it.phase == Phase::Completed);
        if completable {
            let client = self.owner_of(&it);
            let keep = if client.fails { client.failure_retention } else { client.retention };
            it.end(Phase::Completed, Some(world.now + keep));
            world.ledger.standing = Some(it);
            record(world, it.pair.nonce);
        }
    }

    fn judge_release(&self, world: &mut World, mut it: Standing, verb: Verb, answer: &Release) {
        let no_effect = verb == Verb::NoEffect;
        let in_progress = it.phase.is_in_progress();
        match answer {
            Release::Open => {
                let held = it.phase == Phase::Unknown && no_effect;
                world.require(Rule::EndsStay, in_progress || held);
                if no_effect {
                    it.pinned = 0;
                }
                it.end(Phase::Released, Some(world.now + self.owner_of(&it).retention));
            }
            Release::Unknown => {
                let on_hold = world.ledger.life().on_hold;
                world.require(Rule::EndsStay, in_progress && on_hold && !no_effect);
                it.end(Phase::Unknown, None);
            }
            Release::Superseded(_) | Release::Missing => {
                let held = it.phase == Phase::Unknown && no_effect;
                world.require(Rule::OwnerIsHeard, !in_progress && !held);
            }
        }
        world.ledger.standing = Some(it);
    }

    fn judge_abandonment(&self, world: &mut World, mut it: Standing, answer: &Abandonment) {
        let life = world.ledger.life();
        let in_progress = it.phase.is_in_progress();
        match answer {
            Abandonment::Lapsing => {
                world.require(Rule::EndsStay, in_progress && !life.on_hold);
                it.back_off(world.now, &life, self.owner_of(&it));
            }
            Abandonment::Unknown => {
                world.require(Rule::EndsStay, in_progress && life.on_hold);
                it.end(Phase::Unknown, None);
            }
            Abandonment::Superseded(_) | Abandonment::Missing => {
                world.require(Rule::OwnerIsHeard, !in_progress);
            }
        }
        world.ledger.standing = Some(it);
    }
}

/// True when the owner is told that the store did what it asked.
const fn is_accepted(answer: &Answer) -> bool {
    matches!(
        answer,
        Answer::Renew(Renewal::Extended)
            | Answer::Complete(Completion::Recorded)
            | Answer::Release(Release::Open | Release::Unknown)
            | Answer::Abandon(Abandonment::Lapsing | Abandonment::Unknown)
    )
}
