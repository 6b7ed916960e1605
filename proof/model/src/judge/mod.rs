//! Compares each reply with the ledger: was it allowed, and what is the status of the key now?

mod claim;
mod operator;
mod owner;

use semel_core::{Erasure, Forgetting, Resolution};
use semel_planted_bugs::StepReply;

use crate::{
    ModelClient, Protocol, ProtocolRule,
    action::OperatorChoice,
    ledger::{KeyStatus, mask},
    world::{OperatorView, OwnerId, Owning, Verb, WorldState},
};

/// A request together with what the ledger needs to know about its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JudgedRequest {
    Claim { worker: usize, nonce: u8 },
    Owner { verb: Verb, owner_id: OwnerId },
    Resolve { look: OperatorView, choice: OperatorChoice },
    Erase,
    Forget,
    Purge,
}

impl Protocol {
    pub(crate) fn judge(
        &self,
        world: &mut WorldState,
        request: JudgedRequest,
        answer: &StepReply,
        changed: bool,
    ) {
        match (request, answer) {
            (JudgedRequest::Claim { worker, nonce }, StepReply::Claim(answer)) => {
                self.judge_claim(world, worker, nonce, answer);
            }
            (JudgedRequest::Owner { verb, owner_id }, answer) => {
                let mine = world.ledger.status.is_some_and(|it| it.is_owner(owner_id));
                world.require(ProtocolRule::SupersededChangesNothing, mine || !changed);
                self.judge_owner(world, verb, owner_id, answer);
            }
            (JudgedRequest::Resolve { look, choice }, StepReply::Resolve(Resolution::Done)) => {
                self.judge_decision(world, look, choice);
            }
            (JudgedRequest::Erase, StepReply::Erase(Erasure::Erased)) => self.judge_erasure(world),
            (JudgedRequest::Forget, StepReply::Forget(Forgetting::Forgotten)) => {
                operator::judge_forgetting(world);
            }
            (JudgedRequest::Purge, StepReply::Purge) if changed => self.judge_purge(world),
            // Refused requests must have changed nothing: `inspect` checks that.
            _ => {}
        }
    }

    /// A run, which may have had its effect.
    pub(crate) fn judge_run(&self, world: &mut WorldState, worker: usize, owning: &Owning) {
        let fingerprint = mask(self.config.clients[worker].fingerprint);
        let life = world.ledger.life_number(owning.life);
        let others = life.ran & !fingerprint;
        life.ran |= fingerprint;
        // A grant from before a reopening is covered by the operator's decision.
        let counts = owning.reopened == life.reopened;
        let again = counts && life.on_hold && life.effects > 0;
        if counts {
            life.effects = (life.effects + 1).min(2);
        }
        world.require(ProtocolRule::OneFingerprint, others == 0);
        world.require(ProtocolRule::HoldRunsOnce, !again);
    }

    /// The worker whose terms are in force.
    fn client_of(&self, it: &KeyStatus) -> &ModelClient {
        &self.config.clients[usize::from(it.worker)]
    }
}

/// Enters an outcome that was acknowledged as recorded.
fn record(world: &mut WorldState, outcome: u8) {
    let first = *world.ledger.life_mut().outcome.get_or_insert(outcome);
    world.require(ProtocolRule::OneOutcome, first == outcome);
}
