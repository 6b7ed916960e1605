//! What is wrong with what operators do.

use semel_core::State;

use crate::{Call, Flaw, Seen};

pub(super) const FLAWS: &[Flaw] = &[
    Flaw {
        name: "resolve ignores what was seen",
        before: |record, call, _| {
            if let (Some(record), Call::Resolve(request)) = (record, call) {
                (request.seen_nonce, request.seen_token) = (record.nonce, record.token);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "resolve leaves the former owner in power",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Resolve(_), Some(after)) = (record, call, written) {
                after.nonce = before.nonce;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "resolve leaves the attempts",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Resolve(_), Some(after)) = (record, call, written) {
                after.attempts = before.attempts;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "resolve decides live keys",
        before: |record, call, _| {
            if let (Some(record), Call::Resolve(_)) = (record, call)
                && record.state == State::InProgress
            {
                record.lease_until = record.claimed_at;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "erase keeps the labels",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Erase, Some(after)) = (record, call, written) {
                after.labels.clone_from(&before.labels);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "erase leaves no tombstone",
        after: |Seen { call, .. }, written| {
            if matches!(call, Call::Erase) {
                *written = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "forget takes unknown keys",
        before: |record, call, _| {
            if let (Some(record), Call::Forget) = (record, call)
                && record.state == State::Unknown
            {
                record.state = State::Dead;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "resolve refuses a lapsed claim",
        before: |record, call, _| {
            if let (Some(record), Call::Resolve(request)) = (record, call)
                && record.state == State::InProgress
            {
                request.seen_token += 1;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a reopened key is not dirty",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Resolve(_), Some(after)) = (record, call, written) {
                after.dirty = before.dirty;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "purge deletes unknown keys",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Purge) = (record, call)
                && before.state == State::Unknown
            {
                *written = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "purge does not put lost owners on hold",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Purge, Some(_)) = (record, call, &written) {
                *written = Some(before.clone());
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "purge ignores the state",
        after: |Seen { record, call, now }, written| {
            if let (Some(before), Call::Purge) = (record, call)
                && before.claimed_at.after(before.terms.retention) <= now
            {
                *written = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a reopened key forgets its token",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Resolve(_), Some(after)) = (record, call, written)
                && before.state != State::Open
                && after.state == State::Open
            {
                after.token = 0;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "resolve decides completed keys",
        before: |record, call, _| {
            if let (Some(record), Call::Resolve(_)) = (record, call)
                && record.state == State::Completed
            {
                record.state = State::Unknown;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "resolve decides released keys",
        before: |record, call, _| {
            if let (Some(record), Call::Resolve(_)) = (record, call)
                && record.state == State::Open
            {
                record.state = State::Unknown;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "erase keeps the outcome",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Erase, Some(after)) = (record, call, written)
                && after.state == State::Erased
            {
                after.outcome.clone_from(&before.outcome);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "erase keeps the fingerprint",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Erase, Some(after)) = (record, call, written)
                && after.state == State::Erased
            {
                after.fingerprint = before.fingerprint;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "erase keeps the nonce",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Erase, Some(after)) = (record, call, written)
                && after.state == State::Erased
            {
                after.nonce = before.nonce;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a tombstone never expires",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Erase, Some(after)) = (record, call, written)
                && before.state != State::Erased
            {
                after.expires_at = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "forget takes work in progress",
        before: |record, call, _| {
            if let (Some(record), Call::Forget) = (record, call)
                && record.state == State::InProgress
            {
                record.state = State::Dead;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "forget takes tombstones",
        before: |record, call, _| {
            if let (Some(record), Call::Forget) = (record, call)
                && record.state == State::Erased
            {
                record.state = State::Dead;
            }
        },
        ..Flaw::NONE
    },
];
