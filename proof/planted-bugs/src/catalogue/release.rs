//! Bugs of releases and abandonments.

use std::time::Duration;

use semel_core::{Effect, OnLostOwner, State};

use crate::{PlantedBug, StepInput, StepRequest};

pub(super) const BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "release clears the token",
        after: |StepInput { call, .. }, written| {
            if let (StepRequest::Release(_), Some(after)) = (call, written)
                && after.state == State::Open
            {
                after.token = 0;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "release unpins a dirty key",
        after: |StepInput { call, .. }, written| {
            if let (StepRequest::Release(request), Some(after)) = (call, written)
                && request.effect == Effect::None
                && after.state == State::Open
            {
                after.fingerprint = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a retry on hold opens the key",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Release(_)) = (record, call) {
                record.terms.on_lost_owner = OnLostOwner::Rerun;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "any caller may release",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Release(request)) = (record, call) {
                request.owner.nonce = record.nonce.unwrap_or(request.owner.nonce);
                request.owner.token = record.token;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "abandon ignores the backoff",
        before: |_, call, _| {
            if let StepRequest::Abandon(request) = call {
                request.backoff = Duration::ZERO;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "an unknown key expires",
        after: |StepInput { now, .. }, written| {
            if let Some(after) = written
                && after.state == State::Unknown
            {
                after.expires_at.get_or_insert(now.after(after.terms.retention));
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "release takes a key that has ended",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Release(_)) = (record, call) {
                record.state = State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a retry unpins",
        after: |StepInput { call, .. }, written| {
            if let (StepRequest::Release(request), Some(after)) = (call, written)
                && request.effect == Effect::Possible
                && after.state == State::Open
            {
                after.fingerprint = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a retry is not dirty",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Release(_), Some(after)) = (record, call, written) {
                after.dirty = before.dirty;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a released key never expires",
        after: |_, written| {
            if let Some(after) = written
                && after.state == State::Open
            {
                after.expires_at = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a release forgets the attempts",
        after: |StepInput { call, .. }, written| {
            if let (StepRequest::Release(_), Some(after)) = (call, written)
                && after.state == State::Open
            {
                after.attempts = 0;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "an unknown key is released for a retry",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Release(request)) = (record, call)
                && record.state == State::Unknown
                && request.effect == Effect::Possible
            {
                record.state = State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "a release without effect is refused when unknown",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Release(request)) = (record, call)
                && record.state == State::Unknown
            {
                request.owner.token += 1;
            }
        },
        ..PlantedBug::NONE
    },
];
