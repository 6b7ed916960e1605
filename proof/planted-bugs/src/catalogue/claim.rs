//! What is wrong with a claim.

use semel_core::{State, Timestamp};

use crate::{Call, Flaw, Seen};

pub(super) const FLAWS: &[Flaw] = &[
    Flaw {
        name: "claim ignores the fingerprint in progress",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call)
                && record.state == State::InProgress
            {
                request.fingerprint = record.fingerprint.unwrap_or(request.fingerprint);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "claim looks at the state before the fingerprint",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call)
                && matches!(record.state, State::Unknown | State::Dead)
            {
                request.fingerprint = record.fingerprint.unwrap_or(request.fingerprint);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a busy answer extends the lease",
        after: |Seen { record, call, now }, written| {
            if let (Some(before), Call::Claim(request), Some(after)) = (record, call, written)
                && before.is_leased(now)
                && before == after
                && before.nonce != Some(request.nonce)
            {
                after.lease_until = now.after(after.terms.lease);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "the retry of a lost reply counts as an attempt",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Claim(request), Some(after)) = (record, call, written)
                && before.state == State::InProgress
                && before.nonce == Some(request.nonce)
            {
                after.attempts += 1;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "the retry of a lost reply restarts the run",
        after: |Seen { record, call, now }, written| {
            if let (Some(before), Call::Claim(request), Some(after)) = (record, call, written)
                && before.state == State::InProgress
                && before.nonce == Some(request.nonce)
            {
                after.claimed_at = now;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "an abandoned claim is revived by its nonce",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(_)) = (record, call) {
                record.abandoned = false;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a late copy of a released claim is granted",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(_)) = (record, call)
                && record.state == State::Open
            {
                record.nonce = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a contender's policy is used",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call)
                && record.nonce != Some(request.nonce)
            {
                record.terms.on_lost_owner = request.terms.on_lost_owner;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a contender's cap is used",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call) {
                record.terms.max_attempts = request.terms.max_attempts;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "the first owner's lease is everybody's",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call) {
                request.terms.lease = record.terms.lease;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a takeover is not dirty",
        after: |Seen { call, .. }, written| {
            if let (Call::Claim(_), Some(after)) = (call, written) {
                after.dirty = false;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a key that died released keeps its owner",
        after: |Seen { record, .. }, written| {
            if let (Some(before), Some(after)) = (record, written)
                && (before.state, after.state) == (State::Open, State::Dead)
            {
                after.nonce = before.nonce;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a key that dies carries the claimant's nonce",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Claim(request), Some(after)) = (record, call, written)
                && (before.state, after.state) == (State::Open, State::Dead)
            {
                after.nonce = Some(request.nonce);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "one death of a released key is like another",
        after: |Seen { record, .. }, written| {
            if let (Some(before), Some(after)) = (record, written)
                && (before.state, after.state) == (State::Open, State::Dead)
            {
                after.nonce = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "the retry of a lost reply is refused",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call)
                && record.state == State::InProgress
                && record.nonce == Some(request.nonce)
            {
                record.nonce = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a contender's clock, running ahead, judges the lease",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call)
                && record.nonce != Some(request.nonce)
            {
                let ahead = record.terms.lease.as_millis() / 2;
                let until = record.lease_until.as_millis().saturating_sub(ahead);
                record.lease_until = Timestamp::from_millis(until);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a key dies below its cap",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call)
                && record.nonce != Some(request.nonce)
            {
                record.attempts += 1;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a takeover keeps the token",
        after: |Seen { record, .. }, written| {
            if let (Some(before), Some(after)) = (record, written)
                && (before.state, after.state) == (State::InProgress, State::InProgress)
            {
                after.token = before.token;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a released key takes the policy of the next claim",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Claim(request), Some(after)) = (record, call, written)
                && (before.state, after.state) == (State::Open, State::InProgress)
            {
                after.terms = request.terms;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a lost claim expires from its claim on",
        after: |_, written| {
            if let Some(after) = written
                && after.state == State::InProgress
                && after.expires_at.is_some()
            {
                after.expires_at = Some(after.claimed_at.after(after.terms.retention));
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "an unknown key is granted again",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(_)) = (record, call)
                && record.state == State::Unknown
            {
                (record.state, record.nonce) = (State::Open, None);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a dead key is granted again",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(_)) = (record, call)
                && record.state == State::Dead
            {
                (record.state, record.nonce, record.attempts) = (State::Open, None, 0);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "an erased key is granted again",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(_)) = (record, call)
                && record.state == State::Erased
            {
                (record.state, record.attempts) = (State::Open, 0);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "the cap is ignored",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(_)) = (record, call) {
                record.terms.max_attempts = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a released key is granted with its old token",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Claim(_), Some(after)) = (record, call, written)
                && (before.state, after.state) == (State::Open, State::InProgress)
            {
                after.token = before.token;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a takeover is no attempt",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Claim(_), Some(after)) = (record, call, written)
                && (before.state, after.state) == (State::InProgress, State::InProgress)
            {
                after.attempts = before.attempts;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "the retry of a lost reply does not re-arm the lease",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Claim(request), Some(after)) = (record, call, written)
                && before.state == State::InProgress
                && before.nonce == Some(request.nonce)
            {
                after.clone_from(before);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "claim ignores the fingerprint when completed",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(request)) = (record, call)
                && record.state == State::Completed
            {
                request.fingerprint = record.fingerprint.unwrap_or(request.fingerprint);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "claim ignores the fingerprint when released",
        before: |record, call, _| {
            if let (Some(record), Call::Claim(_)) = (record, call)
                && record.state == State::Open
            {
                record.fingerprint = None;
            }
        },
        ..Flaw::NONE
    },
];
