//! Applies an action to a state.

use semel_core::{Claim, Erasure, Forgetting};
use semel_planted_bugs::{StepReply, StepRequest};

use crate::{
    Protocol,
    action::{Action, MessageDelivery, OperatorChoice},
    judge::JudgedRequest,
    request,
    world::{LateMessage, OperatorView, OwnerId, Owning, Verb, WorkerStage, WorldState},
};

impl Protocol {
    /// Applies the action. `None` when it changes nothing that matters.
    pub(crate) fn apply(&self, world: &mut WorldState, action: Action) -> Option<()> {
        match action {
            Action::Tick => self.tick(world),
            Action::Claim(worker, delivery) => self.claim(world, worker, delivery)?,
            Action::Run(worker) => self.run(world, worker)?,
            Action::Owner(worker, verb, delivery) => self.owner(world, worker, verb, delivery)?,
            Action::Crash(worker) => {
                world.left.crashes -= 1;
                world.workers[worker].stage = WorkerStage::Idle;
            }
            Action::Arrive(place) => self.arrive(world, place)?,
            Action::Look => look(world)?,
            Action::Decide(choice) => self.decide(world, choice)?,
            Action::Erase => {
                let answer = self.step(world, JudgedRequest::Erase, StepRequest::Erase);
                world.left.erasures -= u8::from(answer == StepReply::Erase(Erasure::Erased));
            }
            Action::Forget => {
                let answer = self.step(world, JudgedRequest::Forget, StepRequest::Forget);
                let done = answer == StepReply::Forget(Forgetting::Forgotten);
                world.left.forgettings -= u8::from(done);
            }
            Action::Purge => {
                self.step(world, JudgedRequest::Purge, StepRequest::Purge);
            }
            Action::Lose => {
                world.left.losses -= 1;
                (world.record, world.ledger.status) = (None, None);
            }
        }
        Some(())
    }

    fn tick(&self, world: &mut WorldState) {
        world.now += 1;
        world.ledger.pass(world.now);
    }

    /// One step of the store, changed by the planted bug, and judged by the ledger.
    fn step(&self, world: &mut WorldState, judged: JudgedRequest, call: StepRequest) -> StepReply {
        let found = world.record.take();
        let (written, answer) = self.bug.step(found.clone(), call, world.time());
        let changed = written != found;
        world.record = written;
        self.replies.note(&answer);
        self.judge(world, judged, &answer, changed);
        answer
    }

    fn claim(
        &self,
        world: &mut WorldState,
        worker: usize,
        delivery: MessageDelivery,
    ) -> Option<()> {
        let state = world.workers[worker];
        let nonce = match state.stage {
            WorkerStage::Claiming { nonce } => nonce,
            WorkerStage::Idle => self.fresh_nonce(worker, state.calls_left),
            WorkerStage::Owning(_) => return None,
        };
        let first = u8::from(state.stage == WorkerStage::Idle);
        match delivery {
            MessageDelivery::Late => {
                world.left.late_messages -= 1;
                let sender = u8::try_from(worker).ok()?;
                world.post(LateMessage::Claim { worker: sender, nonce }).then_some(())?;
                world.workers[worker].stage = WorkerStage::Claiming { nonce };
                world.workers[worker].calls_left -= first;
            }
            MessageDelivery::Unanswered => {
                world.left.lost_replies -= 1;
                self.claim_now(world, worker, nonce);
                // Otherwise the state is the same as without the claim.
                is_stored(world, nonce).then_some(())?;
                world.workers[worker].stage = WorkerStage::Claiming { nonce };
                world.workers[worker].calls_left -= first;
            }
            MessageDelivery::Answered => {
                let granted = self.claim_now(world, worker, nonce);
                world.workers[worker].stage =
                    granted.map_or(WorkerStage::Idle, |token| own(world, OwnerId { nonce, token }));
                // A nonce that the store has not kept can be used again.
                let used = is_stored(world, nonce);
                world.workers[worker].calls_left -= if used { first } else { 0 };
            }
        }
        Some(())
    }

    /// The token, if the claim was granted.
    fn claim_now(&self, world: &mut WorldState, worker: usize, nonce: u8) -> Option<u8> {
        let call = request::claim(&self.config.clients[worker], nonce);
        match self.step(world, JudgedRequest::Claim { worker, nonce }, call) {
            StepReply::Claim(Claim::Granted(lease)) => u8::try_from(lease.owner.token).ok(),
            _ => None,
        }
    }

    fn run(&self, world: &mut WorldState, worker: usize) -> Option<()> {
        let owning = world.owning(worker)?;
        owning.ran = true;
        let owning = *owning;
        self.judge_run(world, worker, &owning);
        Some(())
    }

    fn owner(
        &self,
        world: &mut WorldState,
        worker: usize,
        verb: Verb,
        delivery: MessageDelivery,
    ) -> Option<()> {
        let owner_id = world.owning(worker)?.owner_id;
        match delivery {
            MessageDelivery::Late => {
                world.left.late_messages -= 1;
                let sender = u8::try_from(worker).ok()?;
                world.post(LateMessage::Owner { worker: sender, verb, owner_id }).then_some(())?;
            }
            MessageDelivery::Unanswered => {
                world.left.lost_replies -= 1;
                self.owner_now(world, verb, owner_id);
            }
            MessageDelivery::Answered => self.owner_now(world, verb, owner_id),
        }
        match (verb, delivery) {
            (Verb::Renew, _) => {}
            (_, MessageDelivery::Answered) => world.workers[worker].stage = WorkerStage::Idle,
            (_, MessageDelivery::Unanswered | MessageDelivery::Late) => {
                world.owning(worker)?.verdict = Some(verb);
            }
        }
        Some(())
    }

    fn owner_now(&self, world: &mut WorldState, verb: Verb, owner_id: OwnerId) {
        let call = request::owner_step(verb, owner_id, self.outcome(owner_id.nonce));
        self.step(world, JudgedRequest::Owner { verb, owner_id }, call);
    }

    fn arrive(&self, world: &mut WorldState, place: usize) -> Option<()> {
        match world.take(place)? {
            LateMessage::Claim { worker, nonce } => {
                self.claim_now(world, worker.into(), nonce);
            }
            LateMessage::Owner { verb, owner_id, .. } => self.owner_now(world, verb, owner_id),
        }
        Some(())
    }

    fn decide(&self, world: &mut WorldState, choice: OperatorChoice) -> Option<()> {
        let look = world.operator_view.take()?;
        world.left.decisions -= 1;
        let call = request::resolve(&look, choice, self.outcome(request::OPERATOR));
        self.step(world, JudgedRequest::Resolve { look, choice }, call);
        Some(())
    }
}

/// The operator reads the record. Only the ledger knows which grant that was.
fn look(world: &mut WorldState) -> Option<()> {
    let grant = world.ledger.grant_number();
    let record = world.live()?;
    let nonce = record.nonce.map(request::from_nonce);
    world.operator_view =
        Some(OperatorView { nonce, token: u8::try_from(record.token).ok()?, grant });
    Some(())
}

fn own(world: &WorldState, owner_id: OwnerId) -> WorkerStage {
    let (life, reopened) = (world.ledger.begun, world.ledger.life().reopened);
    WorkerStage::Owning(Owning { owner_id, life, reopened, ran: false, verdict: None })
}

/// True when the record has this nonce, as the owner's or as that of the claim that found the key dead.
fn is_stored(world: &WorldState, nonce: u8) -> bool {
    let stored = world.record.as_ref().and_then(|record| record.nonce);
    [request::to_nonce(nonce), request::nonce_of_dead_key(nonce)].map(Some).contains(&stored)
}
