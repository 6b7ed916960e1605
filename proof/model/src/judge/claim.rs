//! T1–T5b.

use semel_core::Claim;

use crate::{
    Protocol, Rule,
    ledger::{LIVES, Phase, Standing, mask},
    world::{Pair, World},
};

impl Protocol {
    pub(super) fn judge_claim(&self, world: &mut World, worker: usize, nonce: u8, answer: &Claim) {
        let Some(it) = world.ledger.standing else {
            world.require(Rule::KeptInTime, matches!(answer, Claim::Granted(_)));
            return self.judge_grant(world, worker, nonce, answer);
        };
        self.judge_fingerprint(world, worker, &it, answer);
        let copy = it.pair.nonce == nonce && !it.disowned;
        if copy && it.phase == Phase::Owned {
            world.require(Rule::RetryIsGranted, is_granted(answer, it.pair));
        }
        match answer {
            Claim::Granted(_) if copy && it.phase.is_in_progress() => self.judge_copy(world, it),
            Claim::Granted(_) => {
                let free = it.phase.is_in_progress() || it.phase == Phase::Released;
                world.require(Rule::LateCopyGrantsNobody, !copy);
                world.require(Rule::EndsStay, free);
                self.judge_grant(world, worker, nonce, answer);
            }
            Claim::Busy { .. } => {
                world.require(Rule::EndsStay, it.phase.is_in_progress());
                world.require(Rule::LeaseEnds, copy || !it.is_silent(world.now));
            }
            Claim::Unknown if it.phase.is_in_progress() => judge_hold(world, it),
            Claim::Dead if it.phase != Phase::Dead => self.judge_death(world, it),
            Claim::Released => {
                world.require(Rule::EndsStay, copy && it.phase == Phase::Released);
            }
            Claim::Unknown => world.require(Rule::EndsStay, it.phase == Phase::Unknown),
            Claim::Replay(_) => world.require(Rule::OutcomeStays, it.phase == Phase::Completed),
            Claim::Gone => world.require(Rule::EndsStay, it.phase == Phase::Erased),
            Claim::Dead | Claim::Mismatch => {}
        }
    }

    /// T2: the same grant once more.
    fn judge_copy(&self, world: &mut World, mut it: Standing) {
        world.require(Rule::AbandonedIsFinal, it.phase == Phase::Owned);
        it.arm(world.now, &world.ledger.life(), self.owner_of(&it));
        world.ledger.standing = Some(it);
    }

    /// T1 and T5: a grant to somebody else, or the first of all.
    fn judge_grant(&self, world: &mut World, worker: usize, nonce: u8, answer: &Claim) {
        let Claim::Granted(lease) = answer else { return };
        let client = &self.config.clients[worker];
        let token = u8::try_from(lease.owner.token).unwrap_or(u8::MAX);
        match world.ledger.standing {
            None => world.ledger.begin(client),
            Some(it) => {
                let silent = it.is_silent(world.now);
                world.require(Rule::NoEarlyTakeover, !it.phase.is_in_progress() || silent);
                world.require(Rule::TokensRise, token > it.pair.token);
            }
        }
        if usize::from(world.ledger.begun) <= LIVES {
            world.ledger.grant(world.now, worker, Pair { nonce, token }, client);
            let life = world.ledger.life();
            world.require(Rule::WithinTheCap, life.attempts <= life.cap);
        }
    }

    /// T3: what others asked for is not answered to somebody who asks for something else.
    fn judge_fingerprint(&self, world: &mut World, worker: usize, it: &Standing, answer: &Claim) {
        let mask_of = |worker: usize| mask(self.config.clients[worker].fingerprint);
        let (life, number) = (world.ledger.life(), world.ledger.begun);
        let may_run = world
            .owners()
            .filter(|(_, owning)| owning.may_run_in(number))
            .fold(0, |set, (other, _)| set | mask_of(other));
        let mine = mask_of(worker);
        let others = (life.ran | may_run | it.pinned) & !mine != 0;
        let told = matches!(answer, Claim::Mismatch);
        world.require(Rule::MismatchFirst, told || it.phase == Phase::Erased || !others);
        world.require(Rule::MismatchFirst, !told || life.asked & !mine != 0);
    }

    fn judge_death(&self, world: &mut World, mut it: Standing) {
        let life = world.ledger.life();
        let in_progress = it.phase.is_in_progress();
        world.require(Rule::NotDeadBelowTheCap, life.attempts >= life.cap);
        world.require(Rule::NoEarlyTakeover, !in_progress || it.is_silent(world.now));
        world.require(Rule::EndsStay, in_progress || it.phase == Phase::Released);
        it.disowned |= !in_progress;
        it.end(Phase::Dead, Some(world.now + self.owner_of(&it).failure_retention));
        world.ledger.standing = Some(it);
    }
}

/// T5 on hold.
fn judge_hold(world: &mut World, mut it: Standing) {
    world.require(Rule::NoEarlyTakeover, it.is_silent(world.now));
    world.require(Rule::EndsStay, world.ledger.life().on_hold);
    it.end(Phase::Unknown, None);
    world.ledger.standing = Some(it);
}

fn is_granted(answer: &Claim, pair: Pair) -> bool {
    matches!(answer, Claim::Granted(lease) if lease.owner.token == u64::from(pair.token))
}
