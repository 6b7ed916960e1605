//! Bugs of renewals and completions.

use std::{sync::Arc, time::Duration};

use semel_core::{Body, OnLostOwner, Outcome, Owner, Record, Span, State, Terms, Timestamp};

use crate::{PlantedBug, StepInput, StepRequest};

pub(super) const BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "renew ignores max_run",
        before: |_, call, _| {
            if let StepRequest::Renew(request) = call {
                request.max_run = Duration::MAX;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "renew revives an abandoned claim",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Renew(_)) = (record, call) {
                record.abandoned = false;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "renew leaves the expiry",
        after: |StepInput { record, call, .. }, written| {
            if let (Some(before), StepRequest::Renew(_), Some(after)) = (record, call, written) {
                after.expires_at = before.expires_at;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "complete ignores the nonce",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Complete(request)) = (record, call) {
                request.owner.nonce = record.nonce.unwrap_or(request.owner.nonce);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "complete ignores the token",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Complete(request)) = (record, call) {
                request.owner.token = record.token;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "the last outcome wins",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Complete(_)) = (record, call)
                && record.state == State::Completed
            {
                record.state = State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "complete is refused when the key is unknown",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Complete(request)) = (record, call)
                && record.state == State::Unknown
            {
                request.owner.token += 1;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "retention counts from the claim",
        after: |StepInput { call, .. }, written| {
            if let (StepRequest::Complete(_), Some(after)) = (call, written) {
                after.expires_at = Some(after.claimed_at.after(after.terms.retention));
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "failures are kept like successes",
        after: |StepInput { call, now, .. }, written| {
            if let (StepRequest::Complete(_), Some(after)) = (call, written)
                && after.completed_at == Some(now)
            {
                after.expires_at = Some(now.after(after.terms.retention));
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "bodies are text",
        before: |_, call, _| {
            if let StepRequest::Complete(request) = call
                && let Body::Kept(bytes) = request.outcome.body()
            {
                let text = String::from_utf8_lossy(bytes).into_owned();
                request.outcome = Arc::new(Outcome::success(text));
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "labels are lost at completion",
        after: |StepInput { call, .. }, written| {
            if let (StepRequest::Complete(_), Some(after)) = (call, written) {
                after.labels = None;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "complete makes a record",
        before: |record, call, _| {
            if let StepRequest::Complete(request) = call {
                record.get_or_insert_with(|| in_progress(&request.owner));
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "renew revives a completed key",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Renew(_)) = (record, call)
                && record.state == State::Completed
            {
                record.state = State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "renew revives an unknown key",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Renew(_)) = (record, call)
                && record.state == State::Unknown
            {
                record.state = State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "complete is refused after the lease",
        before: |record, call, now| {
            if let (Some(record), StepRequest::Complete(request)) = (record, call)
                && record.state == State::InProgress
                && !record.is_leased(now)
            {
                request.owner.token += 1;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "complete is refused when the key is dead",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Complete(request)) = (record, call)
                && record.state == State::Dead
            {
                request.owner.token += 1;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "complete finds an expired record",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Complete(_)) = (record, call) {
                record.expires_at = None;
            }
        },
        ..PlantedBug::NONE
    },
];

/// What an upsert takes for granted.
fn in_progress(owner: &Owner) -> Record {
    let terms = Terms {
        lease: Span::default(),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: Span::from_millis(86_400_000),
        failure_retention: Span::from_millis(86_400_000),
    };
    Record {
        key: owner.key,
        state: State::InProgress,
        fingerprint: None,
        nonce: Some(owner.nonce),
        token: owner.token,
        attempts: 1,
        dirty: false,
        abandoned: false,
        contested: false,
        claimed_at: Timestamp::default(),
        lease_until: Timestamp::default(),
        terms,
        created_at: Timestamp::default(),
        completed_at: None,
        expires_at: None,
        outcome: None,
        labels: None,
    }
}
