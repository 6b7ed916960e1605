//! What happens when something happens.

use semel_core::{Claim, Erasure, Forgetting};
use semel_planted_bugs::{Answer, Call};

use crate::{
    Protocol,
    action::{Action, Choice, Delivery},
    judge::Asked,
    request,
    world::{Look, Message, Owning, Pair, Stage, Verb, World},
};

impl Protocol {
    /// Does it. `None`: nothing that matters came of it.
    pub(crate) fn play(&self, world: &mut World, action: Action) -> Option<()> {
        match action {
            Action::Tick => self.tick(world),
            Action::Claim(worker, way) => self.claim(world, worker, way)?,
            Action::Run(worker) => self.run(world, worker)?,
            Action::Owner(worker, verb, way) => self.owner(world, worker, verb, way)?,
            Action::Crash(worker) => {
                world.left.crashes -= 1;
                world.workers[worker].stage = Stage::Idle;
            }
            Action::Arrive(place) => self.arrive(world, place)?,
            Action::Look => look(world)?,
            Action::Decide(choice) => self.decide(world, choice)?,
            Action::Erase => {
                let answer = self.step(world, Asked::Erase, Call::Erase);
                world.left.erasures -= u8::from(answer == Answer::Erase(Erasure::Erased));
            }
            Action::Forget => {
                let answer = self.step(world, Asked::Forget, Call::Forget);
                let done = answer == Answer::Forget(Forgetting::Forgotten);
                world.left.forgettings -= u8::from(done);
            }
            Action::Purge => {
                self.step(world, Asked::Purge, Call::Purge);
            }
            Action::Lose => {
                world.left.losses -= 1;
                (world.record, world.ledger.standing) = (None, None);
            }
        }
        Some(())
    }

    fn tick(&self, world: &mut World) {
        world.now += 1;
        world.ledger.pass(world.now);
    }

    /// One step of the store, as the flaw bends it, and its place in the ledger.
    fn step(&self, world: &mut World, asked: Asked, call: Call) -> Answer {
        let found = world.record.take();
        let (written, answer) = self.flaw.step(found.clone(), call, world.time());
        let changed = written != found;
        world.record = written;
        self.heard.note(&answer);
        self.judge(world, asked, &answer, changed);
        answer
    }

    fn claim(&self, world: &mut World, worker: usize, way: Delivery) -> Option<()> {
        let state = world.workers[worker];
        let nonce = match state.stage {
            Stage::Asking { nonce } => nonce,
            Stage::Idle => self.fresh_nonce(worker, state.calls_left),
            Stage::Owning(_) => return None,
        };
        let first = u8::from(state.stage == Stage::Idle);
        match way {
            Delivery::Late => {
                world.left.late_messages -= 1;
                let sender = u8::try_from(worker).ok()?;
                world.post(Message::Claim { worker: sender, nonce }).then_some(())?;
                world.workers[worker].stage = Stage::Asking { nonce };
                world.workers[worker].calls_left -= first;
            }
            Delivery::Unanswered => {
                world.left.lost_replies -= 1;
                self.claim_now(world, worker, nonce);
                // Otherwise it is the same as not having asked.
                is_stored(world, nonce).then_some(())?;
                world.workers[worker].stage = Stage::Asking { nonce };
                world.workers[worker].calls_left -= first;
            }
            Delivery::Answered => {
                let granted = self.claim_now(world, worker, nonce);
                world.workers[worker].stage =
                    granted.map_or(Stage::Idle, |token| own(world, Pair { nonce, token }));
                // A nonce that the store has not kept may as well be a new one next time.
                let used = is_stored(world, nonce);
                world.workers[worker].calls_left -= if used { first } else { 0 };
            }
        }
        Some(())
    }

    /// The token, if it was granted.
    fn claim_now(&self, world: &mut World, worker: usize, nonce: u8) -> Option<u8> {
        let call = request::claim(&self.config.clients[worker], nonce);
        match self.step(world, Asked::Claim { worker, nonce }, call) {
            Answer::Claim(Claim::Granted(lease)) => u8::try_from(lease.owner.token).ok(),
            _ => None,
        }
    }

    fn run(&self, world: &mut World, worker: usize) -> Option<()> {
        let owning = world.owning(worker)?;
        owning.ran = true;
        let owning = *owning;
        self.judge_run(world, worker, &owning);
        Some(())
    }

    fn owner(&self, world: &mut World, worker: usize, verb: Verb, way: Delivery) -> Option<()> {
        let pair = world.owning(worker)?.pair;
        match way {
            Delivery::Late => {
                world.left.late_messages -= 1;
                let sender = u8::try_from(worker).ok()?;
                world.post(Message::Owner { worker: sender, verb, pair }).then_some(())?;
            }
            Delivery::Unanswered => {
                world.left.lost_replies -= 1;
                self.owner_now(world, verb, pair);
            }
            Delivery::Answered => self.owner_now(world, verb, pair),
        }
        match (verb, way) {
            (Verb::Renew, _) => {}
            (_, Delivery::Answered) => world.workers[worker].stage = Stage::Idle,
            (_, Delivery::Unanswered | Delivery::Late) => {
                world.owning(worker)?.verdict = Some(verb);
            }
        }
        Some(())
    }

    fn owner_now(&self, world: &mut World, verb: Verb, pair: Pair) {
        let call = request::owner_step(verb, pair, self.outcome(pair.nonce));
        self.step(world, Asked::Owner { verb, pair }, call);
    }

    fn arrive(&self, world: &mut World, place: usize) -> Option<()> {
        match world.take(place)? {
            Message::Claim { worker, nonce } => {
                self.claim_now(world, worker.into(), nonce);
            }
            Message::Owner { verb, pair, .. } => self.owner_now(world, verb, pair),
        }
        Some(())
    }

    fn decide(&self, world: &mut World, choice: Choice) -> Option<()> {
        let look = world.desk.take()?;
        world.left.decisions -= 1;
        let call = request::resolve(&look, choice, self.outcome(request::OPERATOR));
        self.step(world, Asked::Resolve { look, choice }, call);
        Some(())
    }
}

/// What the operator sees is the record; which grant that was, only the ledger knows.
fn look(world: &mut World) -> Option<()> {
    let grant = world.ledger.grant_number();
    let record = world.live()?;
    let nonce = record.nonce.map(request::from_nonce);
    world.desk = Some(Look { nonce, token: u8::try_from(record.token).ok()?, grant });
    Some(())
}

fn own(world: &World, pair: Pair) -> Stage {
    let (life, reopened) = (world.ledger.begun, world.ledger.life().reopened);
    Stage::Owning(Owning { pair, life, reopened, ran: false, verdict: None })
}

/// As the owner's, or as that of the claim that found the key dead.
fn is_stored(world: &World, nonce: u8) -> bool {
    let stored = world.record.as_ref().and_then(|record| record.nonce);
    [request::to_nonce(nonce), request::of_nobody(nonce)].map(Some).contains(&stored)
}
