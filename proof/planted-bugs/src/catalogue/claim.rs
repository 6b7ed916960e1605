//! Bugs of claims.

use semel_core::{State, Timestamp};

use crate::{PlantedBug, StepInput, StepRequest};

pub(super) const BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "claim ignores the fingerprint in progress",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call)
                && record.state == State::InProgress
            {
                request.fingerprint = record.fingerprint.unwrap_or(request.fingerprint);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "claim looks at the state before the fingerprint",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call)
                && matches!(record.state, State::Unknown | State::Dead)
            {
                request.fingerprint = record.fingerprint.unwrap_or(request.fingerprint);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a busy answer extends the lease",
        after: |StepInput { record, call, now }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && before.is_leased(now)
                && before == after
                && before.nonce != Some(request.nonce)
            {
                after.lease_until = now.after(after.terms.lease);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the retry of a lost reply counts as an attempt",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && before.state == State::InProgress
                && before.nonce == Some(request.nonce)
            {
                after.attempts += 1;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the retry of a lost reply restarts the run",
        after: |StepInput { record, call, now }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && before.state == State::InProgress
                && before.nonce == Some(request.nonce)
            {
                after.claimed_at = now;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "an abandoned claim is revived by its nonce",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call) {
                record.abandoned = false;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a late copy of a released claim is granted",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call)
                && record.state == State::Open
            {
                record.nonce = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a contender's policy is used",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call)
                && record.nonce != Some(request.nonce)
            {
                record.terms.on_lost_owner = request.terms.on_lost_owner;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a contender's cap is used",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call) {
                record.terms.max_attempts = request.terms.max_attempts;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "every owner gets the lease of the first",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call) {
                request.terms.lease = record.terms.lease;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a takeover is not dirty",
        after: |StepInput { call, .. }, written| {
            if let (StepRequest::Claim(_), Some(after)) = (call, written) {
                after.dirty = false;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a key that died released keeps its owner",
        after: |StepInput { record, .. }, written| {
            if let (Some(before), Some(after)) = (record, written)
                && (before.state, after.state) == (State::Open, State::Dead)
            {
                after.nonce = before.nonce;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a key that dies carries the claimant's nonce",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && (before.state, after.state) == (State::Open, State::Dead)
            {
                after.nonce = Some(request.nonce);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "all deaths of a released key look alike",
        after: |StepInput { record, .. }, written| {
            if let (Some(before), Some(after)) = (record, written)
                && (before.state, after.state) == (State::Open, State::Dead)
            {
                after.nonce = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the retry of a lost reply is refused",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call)
                && record.state == State::InProgress
                && record.nonce == Some(request.nonce)
            {
                record.nonce = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a contender's clock, running ahead, judges the lease",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call)
                && record.nonce != Some(request.nonce)
            {
                let ahead = record.terms.lease.as_millis() / 2;
                let until = record.lease_until.as_millis().saturating_sub(ahead);
                record.lease_until = Timestamp::from_millis(until);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a key dies below its cap",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call)
                && record.nonce != Some(request.nonce)
            {
                record.attempts += 1;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a takeover keeps the token",
        after: |StepInput { record, .. }, written| {
            if let (Some(before), Some(after)) = (record, written)
                && (before.state, after.state) == (State::InProgress, State::InProgress)
            {
                after.token = before.token;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a released key takes the policy of the next claim",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && (before.state, after.state) == (State::Open, State::InProgress)
            {
                after.terms = request.terms;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a lost claim expires from its claim on",
        after: |_, written| {
            if let Some(after) = written
                && after.state == State::InProgress
                && after.expires_at.is_some()
            {
                after.expires_at = Some(after.claimed_at.after(after.terms.retention));
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "an unknown key is granted again",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call)
                && record.state == State::Unknown
            {
                (record.state, record.nonce) = (State::Open, None);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a dead key is granted again",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call)
                && record.state == State::Dead
            {
                (record.state, record.nonce, record.attempts) = (State::Open, None, 0);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "an erased key is granted again",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call)
                && record.state == State::Erased
            {
                (record.state, record.attempts) = (State::Open, 0);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the cap is ignored",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call) {
                record.terms.max_attempts = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a released key is granted with its old token",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(_), Some(after)) = (record, call, written)
                && (before.state, after.state) == (State::Open, State::InProgress)
            {
                after.token = before.token;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a takeover is not counted as an attempt",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(_), Some(after)) = (record, call, written)
                && (before.state, after.state) == (State::InProgress, State::InProgress)
            {
                after.attempts = before.attempts;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the retry of a lost reply does not re-arm the lease",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Claim(request), Some(after)) =
                (record, call, written)
                && before.state == State::InProgress
                && before.nonce == Some(request.nonce)
            {
                after.clone_from(before);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "claim ignores the fingerprint when completed",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(request)) = (record, call)
                && record.state == State::Completed
            {
                request.fingerprint = record.fingerprint.unwrap_or(request.fingerprint);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "claim ignores the fingerprint when released",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Claim(_)) = (record, call)
                && record.state == State::Open
            {
                record.fingerprint = None;
            }
        },
        ..PlantedBug::NONE
    },
];
