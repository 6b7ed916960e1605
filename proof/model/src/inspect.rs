//! Each state beside the ledger, and the question whether everybody can go on.

use semel_core::{Claim, Record, Resolution, State, Timestamp};
use semel_planted_bugs::{Answer, Call};

use crate::{
    Client, Protocol, Rule,
    action::{Choice, is_stuck},
    ledger::Phase,
    request,
    world::{Look, World},
};

/// A claim nobody in the model makes: a newcomer who wants to know whether the key moves on.
const NEWCOMER: u8 = 200;

impl Protocol {
    pub(crate) fn inspect(&self, world: &mut World) {
        let standing = world.ledger.standing;
        world.require(Rule::KeptInTime, standing.is_some() == world.live().is_some());
        let (Some(it), Some(record)) = (standing, world.live()) else { return };
        let agrees = record.state == it.phase.state();
        let in_time = it.phase.is_in_progress() && record.state == State::InProgress;
        let leased = record.is_leased(world.time());
        let stays = it.phase != Phase::Completed || self.holds_its_outcome(world, record);
        let goes_on = self.goes_on(record);
        let resolvable = !is_stuck(world, record) || self.is_resolvable(world, record);
        world.require(Rule::EndsStay, agrees);
        world.require(Rule::OutcomeStays, stays);
        world.require(Rule::NoEarlyTakeover, !in_time || leased || it.is_silent(world.now));
        world.require(Rule::LeaseEnds, !in_time || !leased || !it.is_silent(world.now));
        world.require(Rule::NeverStuck, goes_on);
        world.require(Rule::StuckIsResolvable, resolvable);
    }

    fn holds_its_outcome(&self, world: &World, record: &Record) -> bool {
        let expected = world.ledger.life().outcome.map(|nonce| self.outcome(nonce));
        record.state == State::Completed && record.outcome.as_ref() == expected
    }

    /// Left alone, the record is gone or Unknown in the end; a lease ends before that.
    fn goes_on(&self, record: &Record) -> bool {
        let end = record.expires_at.map_or(record.lease_until, |at| at.max(record.lease_until));
        let (left, _) = self.flaw.step(Some(record.clone()), Call::Purge, end);
        let ends = left.is_none_or(|record| record.state == State::Unknown);
        let busy = record.state == State::InProgress
            && matches!(
                self.newcomer(Some(record.clone()), record, record.lease_until),
                Claim::Busy { .. }
            );
        ends && !busy
    }

    fn is_resolvable(&self, world: &World, record: &Record) -> bool {
        let look = Look {
            nonce: record.nonce.map(request::from_nonce),
            token: u8::try_from(record.token).unwrap_or(u8::MAX),
            grant: (0, 0),
        };
        let call = request::resolve(&look, Choice::Reopen, self.outcome(request::OPERATOR));
        let (opened, answer) = self.flaw.step(Some(record.clone()), call, world.time());
        answer == Answer::Resolve(Resolution::Done)
            && matches!(self.newcomer(opened, record, world.time()), Claim::Granted(_))
    }

    /// What somebody is answered who comes new and asks for the same.
    fn newcomer(&self, found: Option<Record>, asked: &Record, now: Timestamp) -> Claim {
        let fingerprint = asked.fingerprint.map_or(1, |it| it.as_bytes()[0]);
        let call = request::claim(&Client::RERUN.asking_for(fingerprint), NEWCOMER);
        match self.flaw.step(found, call, now).1 {
            Answer::Claim(answer) => answer,
            other => unreachable!("a claim was answered with {other:?}"),
        }
    }
}
