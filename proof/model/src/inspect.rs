//! Compares each state with the ledger, and checks that every key can make progress.

use semel_core::{Claim, Record, Resolution, State, Timestamp};
use semel_planted_bugs::{StepReply, StepRequest};

use crate::{
    ModelClient, Protocol, ProtocolRule,
    action::{OperatorChoice, is_stuck},
    ledger::LedgerPhase,
    request,
    world::{OperatorView, WorldState},
};

/// The nonce of a claim that no worker makes. It probes whether the key makes progress.
const NEWCOMER: u8 = 200;

impl Protocol {
    pub(crate) fn inspect(&self, world: &mut WorldState) {
        let status = world.ledger.status;
        world.require(ProtocolRule::KeptInTime, status.is_some() == world.live().is_some());
        let (Some(it), Some(record)) = (status, world.live()) else { return };
        let agrees = record.state == it.phase.state();
        let in_time = it.phase.is_in_progress() && record.state == State::InProgress;
        let leased = record.is_leased(world.time());
        let stays = it.phase != LedgerPhase::Completed || self.holds_its_outcome(world, record);
        let goes_on = self.goes_on(record);
        let resolvable = !is_stuck(world, record) || self.is_resolvable(world, record);
        world.require(ProtocolRule::StateFollowsTable, agrees);
        world.require(ProtocolRule::OutcomeStays, stays);
        world.require(ProtocolRule::NoEarlyTakeover, !in_time || leased || it.is_silent(world.now));
        world.require(ProtocolRule::LeaseEnds, !in_time || !leased || !it.is_silent(world.now));
        world.require(ProtocolRule::AlwaysProgress, goes_on);
        world.require(ProtocolRule::StuckIsResolvable, resolvable);
    }

    fn holds_its_outcome(&self, world: &WorldState, record: &Record) -> bool {
        let expected = world.ledger.life().outcome.map(|nonce| self.outcome(nonce));
        record.state == State::Completed && record.outcome.as_ref() == expected
    }

    /// Without further calls, the lease ends, then the grace period, and then the record expires or becomes Unknown.
    fn goes_on(&self, record: &Record) -> bool {
        let end = |record: &Record| record.expires_at.unwrap_or_default().max(record.lease_until);
        let purge = |record: Record| {
            let at = end(&record);
            self.bug.step(Some(record), StepRequest::Purge, at).0
        };
        let left = purge(record.clone()).and_then(|left| match left.state {
            State::InProgress => purge(left),
            _ => Some(left),
        });
        let ends = left.is_none_or(|record| record.state == State::Unknown);
        ends && (record.state != State::InProgress || self.gives_way(record))
    }

    /// A claim after the lease is not busy, or another claim after the grace period is not.
    fn gives_way(&self, record: &Record) -> bool {
        let claim = |found: Record| {
            let at = found.lease_until;
            self.newcomer(Some(found), record, at)
        };
        match claim(record.clone()) {
            (Some(contested), Claim::Busy { .. }) => {
                !matches!(claim(contested), (_, Claim::Busy { .. }))
            }
            (_, reply) => !matches!(reply, Claim::Busy { .. }),
        }
    }

    fn is_resolvable(&self, world: &WorldState, record: &Record) -> bool {
        let look = OperatorView {
            nonce: record.nonce.map(request::from_nonce),
            token: u8::try_from(record.token).unwrap_or(u8::MAX),
            grant: (0, 0),
        };
        let call = request::resolve(&look, OperatorChoice::Reopen, self.outcome(request::OPERATOR));
        let (opened, answer) = self.bug.step(Some(record.clone()), call, world.time());
        answer == StepReply::Resolve(Resolution::Done)
            && matches!(self.newcomer(opened, record, world.time()), (_, Claim::Granted(_)))
    }

    /// The record after a new claim with the fingerprint of `like`, and the reply.
    fn newcomer(
        &self,
        found: Option<Record>,
        like: &Record,
        now: Timestamp,
    ) -> (Option<Record>, Claim) {
        let fingerprint = like.fingerprint.map_or(1, |it| it.as_bytes()[0]);
        let call = request::claim(&ModelClient::RERUN.with_fingerprint(fingerprint), NEWCOMER);
        match self.bug.step(found, call, now) {
            (left, StepReply::Claim(answer)) => (left, answer),
            (_, other) => unreachable!("a claim was answered with {other:?}"),
        }
    }
}
