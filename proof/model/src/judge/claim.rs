//! Judges claims (T1–T5b, with T5a).

use semel_core::Claim;

use crate::{
    Protocol, ProtocolRule,
    ledger::{KeyStatus, LIVES, LedgerPhase, mask},
    world::{OwnerId, WorldState},
};

impl Protocol {
    pub(super) fn judge_claim(
        &self,
        world: &mut WorldState,
        worker: usize,
        nonce: u8,
        answer: &Claim,
    ) {
        let Some(it) = world.ledger.status else {
            world.require(ProtocolRule::KeptInTime, matches!(answer, Claim::Granted(_)));
            return self.judge_grant(world, worker, nonce, answer);
        };
        self.judge_fingerprint(world, worker, &it, answer);
        let copy = it.owner_id.nonce == nonce && !it.disowned;
        if copy && it.phase == LedgerPhase::Owned {
            world.require(ProtocolRule::RetryIsGranted, is_granted(answer, it.owner_id));
        }
        match answer {
            Claim::Granted(_) if copy && it.phase.is_in_progress() => self.judge_copy(world, it),
            Claim::Granted(_) => {
                let free = it.phase.is_in_progress() || it.phase == LedgerPhase::Released;
                world.require(ProtocolRule::LateCopyIsNotGranted, !copy);
                world.require(ProtocolRule::StateFollowsTable, free);
                self.judge_grant(world, worker, nonce, answer);
            }
            Claim::Busy { .. } => {
                world.require(ProtocolRule::StateFollowsTable, it.phase.is_in_progress());
                if !copy && it.is_silent(world.now) {
                    self.judge_contest(world, it);
                }
            }
            Claim::Unknown if it.phase.is_in_progress() => judge_hold(world, it),
            Claim::Dead if it.phase != LedgerPhase::Dead => self.judge_death(world, it),
            Claim::Released => {
                world.require(
                    ProtocolRule::StateFollowsTable,
                    copy && it.phase == LedgerPhase::Released,
                );
            }
            Claim::Unknown => {
                world.require(ProtocolRule::StateFollowsTable, it.phase == LedgerPhase::Unknown)
            }
            Claim::Replay(_) => {
                world.require(ProtocolRule::OutcomeStays, it.phase == LedgerPhase::Completed)
            }
            Claim::Gone => {
                world.require(ProtocolRule::StateFollowsTable, it.phase == LedgerPhase::Erased)
            }
            Claim::Dead | Claim::Mismatch => {}
        }
    }

    /// T5a: the lease is over, and the owner gets the grace period.
    fn judge_contest(&self, world: &mut WorldState, mut it: KeyStatus) {
        world.require(ProtocolRule::LeaseEnds, !it.is_lost(world.now));
        it.contest(world.now, &world.ledger.life(), self.client_of(&it));
        world.ledger.status = Some(it);
    }

    /// T2: the same claim is granted again.
    fn judge_copy(&self, world: &mut WorldState, mut it: KeyStatus) {
        world.require(ProtocolRule::AbandonedIsFinal, it.phase == LedgerPhase::Owned);
        it.arm(world.now, &world.ledger.life(), self.client_of(&it));
        world.ledger.status = Some(it);
    }

    /// T1 and T5: a grant to a new owner.
    fn judge_grant(&self, world: &mut WorldState, worker: usize, nonce: u8, answer: &Claim) {
        let Claim::Granted(lease) = answer else { return };
        let client = &self.config.clients[worker];
        let token = u8::try_from(lease.owner.token).unwrap_or(u8::MAX);
        match world.ledger.status {
            None => world.ledger.begin(client),
            Some(it) => {
                let lost = it.is_lost(world.now);
                world.require(ProtocolRule::NoEarlyTakeover, !it.phase.is_in_progress() || lost);
                world.require(ProtocolRule::TokensRise, token > it.owner_id.token);
            }
        }
        if usize::from(world.ledger.begun) <= LIVES {
            world.ledger.grant(world.now, worker, OwnerId { nonce, token }, client);
            let life = world.ledger.life();
            world.require(ProtocolRule::WithinTheLimit, life.attempts <= life.cap);
        }
    }

    /// T3: a claim with another fingerprint is answered Mismatch.
    fn judge_fingerprint(
        &self,
        world: &mut WorldState,
        worker: usize,
        it: &KeyStatus,
        answer: &Claim,
    ) {
        let mask_of = |worker: usize| mask(self.config.clients[worker].fingerprint);
        let (life, number) = (world.ledger.life(), world.ledger.begun);
        let may_run = world
            .owners()
            .filter(|(_, owning)| owning.may_run_in(number))
            .fold(0, |set, (other, _)| set | mask_of(other));
        let mine = mask_of(worker);
        let others = (life.ran | may_run | it.pinned) & !mine != 0;
        let is_mismatch = matches!(answer, Claim::Mismatch);
        world.require(
            ProtocolRule::MismatchFirst,
            is_mismatch || it.phase == LedgerPhase::Erased || !others,
        );
        world.require(ProtocolRule::MismatchFirst, !is_mismatch || life.granted & !mine != 0);
    }

    fn judge_death(&self, world: &mut WorldState, mut it: KeyStatus) {
        let life = world.ledger.life();
        let in_progress = it.phase.is_in_progress();
        world.require(ProtocolRule::NotDeadBelowTheLimit, life.attempts >= life.cap);
        world.require(ProtocolRule::NoEarlyTakeover, !in_progress || it.is_lost(world.now));
        world.require(
            ProtocolRule::StateFollowsTable,
            in_progress || it.phase == LedgerPhase::Released,
        );
        it.disowned |= !in_progress;
        it.end(LedgerPhase::Dead, Some(world.now + self.client_of(&it).failure_retention));
        world.ledger.status = Some(it);
    }
}

/// T5 on hold: the key becomes Unknown.
fn judge_hold(world: &mut WorldState, mut it: KeyStatus) {
    world.require(ProtocolRule::NoEarlyTakeover, it.is_lost(world.now));
    world.require(ProtocolRule::StateFollowsTable, world.ledger.life().on_hold);
    it.end(LedgerPhase::Unknown, None);
    world.ledger.status = Some(it);
}

fn is_granted(answer: &Claim, owner_id: OwnerId) -> bool {
    matches!(answer, Claim::Granted(lease) if lease.owner.token == u64::from(owner_id.token))
}
