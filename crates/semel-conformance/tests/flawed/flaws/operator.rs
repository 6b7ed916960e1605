//! What is wrong with what operators do.

use semel_core::State;

use crate::flawed::{Call, Flaw, Seen};

pub(crate) const FLAWS: &[Flaw] = &[
    Flaw {
        name: "resolve ignores what was seen",
        before: |record, call| {
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
        before: |record, call| {
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
        before: |record, call| {
            if let (Some(record), Call::Forget) = (record, call)
                && record.state == State::Unknown
            {
                record.state = State::Dead;
            }
        },
        ..Flaw::NONE
    },
];
