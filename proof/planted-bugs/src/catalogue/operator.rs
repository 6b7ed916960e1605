//! Bugs of operators' steps and purges.

use semel_core::State;

use crate::{PlantedBug, StepInput, StepRequest};

pub(super) const BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "resolve ignores what was seen",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Resolve(request)) = (record, call) {
                (request.seen_nonce, request.seen_token) = (record.nonce, record.token);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "resolve leaves the former owner in place",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Resolve(_), Some(after)) = (record, call, written) {
                after.nonce = before.nonce;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "resolve leaves the attempts",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Resolve(_), Some(after)) = (record, call, written) {
                after.attempts = before.attempts;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "resolve decides live keys",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Resolve(_)) = (record, call)
                && record.state == State::InProgress
            {
                record.lease_until = record.claimed_at;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "erase keeps the labels",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Erase, Some(after)) = (record, call, written) {
                after.labels.clone_from(&before.labels);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "erase leaves no tombstone",
        after: |StepInput { call, .. }, written| {
            if matches!(call, StepRequest::Erase) {
                *written = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "forget takes unknown keys",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Forget) = (record, call)
                && record.state == State::Unknown
            {
                record.state = State::Dead;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "resolve refuses a lapsed claim",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Resolve(request)) = (record, call)
                && record.state == State::InProgress
            {
                request.seen_token += 1;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a reopened key is not dirty",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Resolve(_), Some(after)) = (record, call, written) {
                after.dirty = before.dirty;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "purge deletes unknown keys",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Purge) = (record, call)
                && before.state == State::Unknown
            {
                *written = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "purge does not put lost owners on hold",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Purge, Some(_)) = (record, call, &written) {
                *written = Some(before.clone());
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "purge ignores the state",
        after: |StepInput { record, call, now }, written| {
            if let (Some(before), StepRequest::Purge) = (record, call)
                && before.claimed_at.after(before.terms.retention) <= now
            {
                *written = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a reopened key forgets its token",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Resolve(_), Some(after)) = (record, call, written)
                && before.state != State::Open
                && after.state == State::Open
            {
                after.token = 0;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "resolve decides completed keys",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Resolve(_)) = (record, call)
                && record.state == State::Completed
            {
                record.state = State::Unknown;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "resolve decides released keys",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Resolve(_)) = (record, call)
                && record.state == State::Open
            {
                record.state = State::Unknown;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "erase keeps the outcome",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Erase, Some(after)) = (record, call, written)
                && after.state == State::Erased
            {
                after.outcome.clone_from(&before.outcome);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "erase keeps the fingerprint",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Erase, Some(after)) = (record, call, written)
                && after.state == State::Erased
            {
                after.fingerprint = before.fingerprint;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "erase keeps the nonce",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Erase, Some(after)) = (record, call, written)
                && after.state == State::Erased
            {
                after.nonce = before.nonce;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a tombstone never expires",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Erase, Some(after)) = (record, call, written)
                && before.state != State::Erased
            {
                after.expires_at = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "forget takes work in progress",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Forget) = (record, call)
                && record.state == State::InProgress
            {
                record.state = State::Dead;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "forget takes tombstones",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Forget) = (record, call)
                && record.state == State::Erased
            {
                record.state = State::Dead;
            }
        },
        ..PlantedBug::NONE
    },
];
