//! Each answer beside the ledger: was it allowed, and how does the key stand now?

mod claim;
mod operator;
mod owner;

use semel_core::{Erasure, Forgetting, Resolution};
use semel_planted_bugs::Answer;

use crate::{
    Client, Protocol, Rule,
    action::Choice,
    ledger::{Standing, mask},
    world::{Look, Owning, Pair, Verb, World},
};

/// Who asked for what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Claim { worker: usize, nonce: u8 },
    Owner { verb: Verb, pair: Pair },
    Resolve { look: Look, choice: Choice },
    Erase,
    Forget,
    Purge,
}

impl Protocol {
    pub(crate) fn judge(&self, world: &mut World, asked: Asked, answer: &Answer, changed: bool) {
        match (asked, answer) {
            (Asked::Claim { worker, nonce }, Answer::Claim(answer)) => {
                self.judge_claim(world, worker, nonce, answer);
            }
            (Asked::Owner { verb, pair }, answer) => {
                let mine = world.ledger.standing.is_some_and(|it| it.is_owner(pair));
                world.require(Rule::StaleChangesNothing, mine || !changed);
                self.judge_owner(world, verb, pair, answer);
            }
            (Asked::Resolve { look, choice }, Answer::Resolve(Resolution::Done)) => {
                self.judge_decision(world, look, choice);
            }
            (Asked::Erase, Answer::Erase(Erasure::Erased)) => self.judge_erasure(world),
            (Asked::Forget, Answer::Forget(Forgetting::Forgotten)) => {
                operator::judge_forgetting(world);
            }
            (Asked::Purge, Answer::Purge) if changed => operator::judge_purge(world),
            // What was refused must have changed nothing: `inspect` sees to that.
            _ => {}
        }
    }

    /// A run, and with it perhaps the effect.
    pub(crate) fn judge_run(&self, world: &mut World, worker: usize, owning: &Owning) {
        let asked = mask(self.config.clients[worker].fingerprint);
        let life = world.ledger.life_number(owning.life);
        let others = life.ran & !asked;
        life.ran |= asked;
        // Whoever was granted the key before an operator reopened it is the operator's business.
        let counts = owning.reopened == life.reopened;
        let again = counts && life.on_hold && life.effects > 0;
        if counts {
            life.effects = (life.effects + 1).min(2);
        }
        world.require(Rule::OneFingerprint, others == 0);
        world.require(Rule::HoldRunsOnce, !again);
    }

    /// Whose terms are in force.
    fn owner_of(&self, it: &Standing) -> &Client {
        &self.config.clients[usize::from(it.worker)]
    }
}

/// Enters an outcome that was said to be recorded.
fn record(world: &mut World, outcome: u8) {
    let first = *world.ledger.life_mut().outcome.get_or_insert(outcome);
    world.require(Rule::OneOutcome, first == outcome);
}
