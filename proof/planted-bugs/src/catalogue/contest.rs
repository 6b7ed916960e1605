//! Bugs of the two-step takeover (T5a).

use semel_core::{Record, State, Timestamp};

use crate::{PlantedBug, StepInput, StepRequest};

pub(super) const BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "a lapsed lease is taken over at once",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call) {
                record.contested |= record.state == State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the cap needs no contest",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call)
                && record.terms.max_attempts.is_some_and(|max| record.attempts >= max.get())
            {
                record.contested |= record.state == State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "purge needs no contest",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Purge) = (record, call) {
                record.contested |= record.state == State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "every claim contests anew",
        after: |StepInput { record, call, now }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && before.contested
                && before.is_leased(now)
                && before.nonce != Some(request.nonce)
            {
                after.lease_until = now.after(after.terms.grace_period());
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a contest writes nothing",
        after: |StepInput { record, call, now }, written| {
            if let (Some(before), StepRequest::Claim(_), Some(after)) = (record, call, written)
                && begins_contest(before, after, now)
            {
                after.clone_from(before);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the contender's lease decides the grace period",
        after: |StepInput { record, call, now }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && begins_contest(before, after, now)
            {
                after.lease_until = now.after(request.terms.grace_period());
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a renewal leaves the contest",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Renew(_), Some(after)) = (record, call, written) {
                after.contested = before.contested;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the retry of a lost reply leaves the contest",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && before.nonce == Some(request.nonce)
                && after.state == State::InProgress
            {
                after.contested |= before.contested;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a takeover leaves the contest",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(_), Some(after)) = (record, call, written)
                && after.token > before.token
            {
                after.contested = before.contested;
            }
        },
        ..PlantedBug::NONE
    },
];

fn begins_contest(before: &Record, after: &Record, now: Timestamp) -> bool {
    before.state == State::InProgress
        && !before.contested
        && !before.is_leased(now)
        && after.contested
}
