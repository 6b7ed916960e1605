//! What is wrong when a key is given back or up.

use std::time::Duration;

use semel_core::{Effect, OnLostOwner, State};

use crate::{Call, Flaw, Seen};

pub(super) const FLAWS: &[Flaw] = &[
    Flaw {
        name: "release clears the token",
        after: |Seen { call, .. }, written| {
            if let (Call::Release(_), Some(after)) = (call, written)
                && after.state == State::Open
            {
                after.token = 0;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "release unpins a dirty key",
        after: |Seen { call, .. }, written| {
            if let (Call::Release(request), Some(after)) = (call, written)
                && request.effect == Effect::None
                && after.state == State::Open
            {
                after.fingerprint = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a retry on hold opens the key",
        before: |record, call, _| {
            if let (Some(record), Call::Release(_)) = (record, call) {
                record.terms.on_lost_owner = OnLostOwner::Rerun;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "anybody may release",
        before: |record, call, _| {
            if let (Some(record), Call::Release(request)) = (record, call) {
                request.owner.nonce = record.nonce.unwrap_or(request.owner.nonce);
                request.owner.token = record.token;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "abandon ignores the backoff",
        before: |_, call, _| {
            if let Call::Abandon(request) = call {
                request.backoff = Duration::ZERO;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "an unknown key expires",
        after: |Seen { now, .. }, written| {
            if let Some(after) = written
                && after.state == State::Unknown
            {
                after.expires_at.get_or_insert(now.after(after.terms.retention));
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "release takes a key that has ended",
        before: |record, call, _| {
            if let (Some(record), Call::Release(_)) = (record, call) {
                record.state = State::InProgress;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a retry unpins",
        after: |Seen { call, .. }, written| {
            if let (Call::Release(request), Some(after)) = (call, written)
                && request.effect == Effect::Possible
                && after.state == State::Open
            {
                after.fingerprint = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a retry is not dirty",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Release(_), Some(after)) = (record, call, written) {
                after.dirty = before.dirty;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a released key never expires",
        after: |_, written| {
            if let Some(after) = written
                && after.state == State::Open
            {
                after.expires_at = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a release forgets the attempts",
        after: |Seen { call, .. }, written| {
            if let (Call::Release(_), Some(after)) = (call, written)
                && after.state == State::Open
            {
                after.attempts = 0;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "an unknown key is released for a retry",
        before: |record, call, _| {
            if let (Some(record), Call::Release(request)) = (record, call)
                && record.state == State::Unknown
                && request.effect == Effect::Possible
            {
                record.state = State::InProgress;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "a release without effect is refused when unknown",
        before: |record, call, _| {
            if let (Some(record), Call::Release(request)) = (record, call)
                && record.state == State::Unknown
            {
                request.owner.token += 1;
            }
        },
        ..Flaw::NONE
    },
];
