//! Each answer beside the ledger: was it allowed, and how does the key stand now?

use semel_core::{
    Abandonment, Claim, Completion, Erasure, Forgetting, Release, Renewal, Resolution, State,
};
use semel_flaws::Answer;

use crate::{
    Protocol, Rule,
    action::Choice,
    config::MAX_RUN,
    ledger::{LIVES, Phase, Standing, mask},
    request::OPERATOR,
    world::{Look, Owning, Pair, Verb, World},
};

/// Who asked for what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Claim { worker: usize, nonce: u8 },
    Owner { worker: usize, verb: Verb, pair: Pair },
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
            (Asked::Owner { worker, verb, pair }, answer) => {
                let mine = world.ledger.standing.is_some_and(|it| it.is_owner(pair));
                world.require(Rule::StaleChangesNothing, mine || !changed);
                self.judge_owner(world, worker, verb, pair, answer);
            }
            (Asked::Resolve { look, choice }, Answer::Resolve(Resolution::Done)) => {
                self.judge_decision(world, look, choice);
            }
            (Asked::Erase, Answer::Erase(Erasure::Erased)) => self.judge_erasure(world),
            (Asked::Forget, Answer::Forget(Forgetting::Forgotten)) => judge_forgetting(world),
            (Asked::Purge, Answer::Purge) if changed => judge_purge(world),
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

    fn judge_claim(&self, world: &mut World, worker: usize, nonce: u8, answer: &Claim) {
        let now = world.now;
        let Some(mut it) = world.ledger.standing else {
            world.require(Rule::KeptInTime, matches!(answer, Claim::Granted(_)));
            return self.judge_grant(world, worker, nonce, answer);
        };
        self.judge_fingerprint(world, worker, &it, answer);
        let copy = it.pair.nonce == nonce && !it.disowned;
        if copy && it.phase == Phase::Owned {
            let again = matches!(answer, Claim::Granted(lease) if lease.owner.token == u64::from(it.pair.token));
            world.require(Rule::RetryIsGranted, again);
        }
        let life = *world.ledger.life();
        match answer {
            Claim::Granted(_) if copy && it.phase.is_in_progress() => {
                world.require(Rule::AbandonedIsFinal, it.phase == Phase::Owned);
                it.arm(now, &life, &self.config.clients[worker]);
                world.ledger.standing = Some(it);
            }
            Claim::Granted(_) => {
                world.require(Rule::LateCopyGrantsNobody, !copy);
                world.require(
                    Rule::EndsStay,
                    it.phase.is_in_progress() || it.phase == Phase::Released,
                );
                self.judge_grant(world, worker, nonce, answer);
            }
            Claim::Busy { .. } => {
                world.require(Rule::EndsStay, it.phase.is_in_progress());
                world.require(Rule::LeaseEnds, copy || !it.is_silent(now));
            }
            Claim::Unknown if it.phase.is_in_progress() => {
                world.require(Rule::NoEarlyTakeover, it.is_silent(now));
                world.require(Rule::EndsStay, life.on_hold);
                it.end(Phase::Unknown, None);
                world.ledger.standing = Some(it);
            }
            Claim::Dead if it.phase != Phase::Dead => {
                let in_progress = it.phase.is_in_progress();
                world.require(Rule::NotDeadBelowTheCap, life.attempts >= life.cap);
                world.require(Rule::NoEarlyTakeover, !in_progress || it.is_silent(now));
                world.require(Rule::EndsStay, in_progress || it.phase == Phase::Released);
                it.disowned |= !in_progress;
                it.end(Phase::Dead, Some(now + self.owner_of(&it).failure_retention));
                world.ledger.standing = Some(it);
            }
            Claim::Released => {
                world.require(Rule::EndsStay, copy && it.phase == Phase::Released);
            }
            Claim::Unknown => world.require(Rule::EndsStay, it.phase == Phase::Unknown),
            Claim::Replay(_) => world.require(Rule::OutcomeStays, it.phase == Phase::Completed),
            Claim::Gone => world.require(Rule::EndsStay, it.phase == Phase::Erased),
            Claim::Dead | Claim::Mismatch => {}
        }
    }

    /// A grant that is not the repetition of one.
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
            let life = *world.ledger.life();
            world.require(Rule::WithinTheCap, life.attempts <= life.cap);
        }
    }

    /// T3: what others asked for, and may have had, is not answered to somebody who asks for something else.
    fn judge_fingerprint(&self, world: &mut World, worker: usize, it: &Standing, answer: &Claim) {
        let mine = mask(self.config.clients[worker].fingerprint);
        let life = world.ledger.begun;
        let may_run = world
            .owners()
            .filter(|(_, owning)| owning.may_run_in(life))
            .fold(0, |set, (other, _)| set | mask(self.config.clients[other].fingerprint));
        let told = matches!(answer, Claim::Mismatch);
        let life = *world.ledger.life();
        let others = (life.ran | may_run | it.pinned) & !mine != 0;
        let erased = it.phase == Phase::Erased;
        world.require(Rule::MismatchFirst, told || erased || !others);
        world.require(Rule::MismatchFirst, !told || life.asked & !mine != 0);
    }

    fn judge_owner(
        &self,
        world: &mut World,
        worker: usize,
        verb: Verb,
        pair: Pair,
        answer: &Answer,
    ) {
        let standing = world.ledger.standing.filter(|it| it.is_owner(pair));
        if let Answer::Complete(Completion::Recorded) = answer {
            let stored = world.live().filter(|record| record.state == State::Completed);
            let outcome = stored.and_then(|record| record.outcome.as_ref());
            let own = outcome == Some(self.outcome(pair.nonce));
            world.require(Rule::RecordedIsStored, own);
        }
        let Some(it) = standing else {
            let taken = matches!(
                answer,
                Answer::Renew(Renewal::Extended)
                    | Answer::Complete(Completion::Recorded)
                    | Answer::Release(Release::Open | Release::Unknown)
                    | Answer::Abandon(Abandonment::Lapsing | Abandonment::Unknown)
            );
            return world.require(Rule::StaleChangesNothing, !taken);
        };
        match answer {
            Answer::Renew(answer) => self.judge_renewal(world, worker, it, *answer),
            Answer::Complete(answer) => self.judge_completion(world, it, pair, answer),
            Answer::Release(answer) => self.judge_release(world, it, verb, answer),
            Answer::Abandon(answer) => self.judge_abandonment(world, worker, it, answer),
            _ => {}
        }
    }

    fn judge_renewal(&self, world: &mut World, worker: usize, mut it: Standing, answer: Renewal) {
        let in_time = world.now - it.granted_at < MAX_RUN;
        match answer {
            Renewal::Extended => {
                world.require(Rule::AbandonedIsFinal, it.phase != Phase::Abandoned);
                world.require(Rule::EndsStay, it.phase.is_in_progress());
                world.require(Rule::MaxRunEnds, in_time);
                let life = *world.ledger.life();
                it.arm(world.now, &life, &self.config.clients[worker]);
                world.ledger.standing = Some(it);
            }
            Renewal::Lost => {
                world.require(Rule::OwnerIsHeard, it.phase != Phase::Owned || !in_time);
            }
        }
    }

    fn judge_completion(
        &self,
        world: &mut World,
        mut it: Standing,
        pair: Pair,
        answer: &Completion,
    ) {
        let completable = it.phase.is_completable();
        if !matches!(answer, Completion::Recorded) {
            return world.require(Rule::OwnerIsHeard, !completable);
        }
        world.require(Rule::EndsStay, completable || it.phase == Phase::Completed);
        if completable {
            let client = self.owner_of(&it);
            let keep = if client.fails { client.failure_retention } else { client.retention };
            it.end(Phase::Completed, Some(world.now + keep));
            world.ledger.standing = Some(it);
            self.record(world, pair.nonce);
        }
    }

    fn judge_release(&self, world: &mut World, mut it: Standing, verb: Verb, answer: &Release) {
        let no_effect = verb == Verb::NoEffect;
        match answer {
            Release::Open => {
                let held = it.phase == Phase::Unknown && no_effect;
                world.require(Rule::EndsStay, it.phase.is_in_progress() || held);
                if no_effect {
                    it.pinned = 0;
                }
                it.end(Phase::Released, Some(world.now + self.owner_of(&it).retention));
            }
            Release::Unknown => {
                let on_hold = world.ledger.life().on_hold;
                world.require(Rule::EndsStay, it.phase.is_in_progress() && on_hold && !no_effect);
                it.end(Phase::Unknown, None);
            }
            Release::Superseded(_) | Release::Missing => {}
        }
        world.ledger.standing = Some(it);
    }

    fn judge_abandonment(
        &self,
        world: &mut World,
        worker: usize,
        mut it: Standing,
        answer: &Abandonment,
    ) {
        let life = *world.ledger.life();
        let taken = matches!(answer, Abandonment::Lapsing | Abandonment::Unknown);
        world.require(Rule::EndsStay, !taken || it.phase.is_in_progress());
        match answer {
            Abandonment::Lapsing => {
                world.require(Rule::EndsStay, !life.on_hold);
                it.back_off(world.now, &life, &self.config.clients[worker]);
            }
            Abandonment::Unknown => {
                world.require(Rule::EndsStay, life.on_hold);
                it.end(Phase::Unknown, None);
            }
            Abandonment::Superseded(_) | Abandonment::Missing => {}
        }
        world.ledger.standing = Some(it);
    }

    fn judge_decision(&self, world: &mut World, look: Look, choice: Choice) {
        // A claim call that came twice, in two lives of the record, is one claim to everybody.
        let same = world.ledger.standing.is_some_and(|it| look.nonce == Some(it.pair.nonce));
        let as_seen = same || world.ledger.grant_number() == look.grant;
        world.require(Rule::DecidesWhatWasSeen, as_seen);
        let Some(mut it) = world.ledger.standing else {
            return world.require(Rule::KeptInTime, false);
        };
        let lapsed = it.phase.is_in_progress() && it.is_silent(world.now);
        let stuck = matches!(it.phase, Phase::Unknown | Phase::Dead) || lapsed;
        world.require(Rule::NoEarlyTakeover, stuck || !it.phase.is_in_progress());
        world.require(Rule::EndsStay, stuck);
        it.disowned = true;
        let expires_at = Some(world.now + self.owner_of(&it).retention);
        match choice {
            Choice::Complete => {
                it.end(Phase::Completed, expires_at);
                self.record(world, OPERATOR);
            }
            Choice::Reopen | Choice::ReopenClean => {
                it.end(Phase::Released, expires_at);
                let life = world.ledger.life();
                life.reopened += 1;
                (life.attempts, life.effects) = (0, 0);
                if choice == Choice::ReopenClean {
                    it.pinned = 0;
                }
            }
        }
        world.ledger.standing = Some(it);
    }

    fn judge_erasure(&self, world: &mut World) {
        let Some(mut it) = world.ledger.standing else {
            return world.require(Rule::KeptInTime, false);
        };
        it.disowned = true;
        it.pinned = 0;
        it.end(Phase::Erased, Some(world.now + self.owner_of(&it).retention));
        world.ledger.standing = Some(it);
    }

    /// Enters an outcome that was said to be recorded.
    fn record(&self, world: &mut World, outcome: u8) {
        let life = world.ledger.life();
        let first = *life.outcome.get_or_insert(outcome);
        world.require(Rule::OneOutcome, first == outcome);
    }

    fn owner_of(&self, it: &Standing) -> &crate::Client {
        &self.config.clients[usize::from(it.worker)]
    }
}

fn judge_forgetting(world: &mut World) {
    let decided = |phase| matches!(phase, Phase::Completed | Phase::Dead | Phase::Released);
    let standing = world.ledger.standing.take();
    world.require(Rule::ForgetSparesTheUndecided, standing.is_some_and(|it| decided(it.phase)));
}

fn judge_purge(world: &mut World) {
    let Some(mut it) = world.ledger.standing else { return };
    let on_hold = world.ledger.life().on_hold;
    let lost = on_hold && it.phase.is_in_progress() && it.is_silent(world.now);
    world.require(Rule::PurgeSparesTheLiving, world.record.is_some() && lost);
    if lost {
        it.end(Phase::Unknown, None);
        world.ledger.standing = Some(it);
    }
}
