//! What is wrong with a lease or a completion.

use std::{sync::Arc, time::Duration};

use semel_core::{Body, OnLostOwner, Outcome, Owner, Record, Span, State, Terms, Timestamp};

use crate::{Call, Flaw, Seen};

pub(super) const FLAWS: &[Flaw] = &[
    Flaw {
        name: "renew ignores max_run",
        before: |_, call, _| {
            if let Call::Renew(request) = call {
                request.max_run = Duration::MAX;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "renew revives an abandoned claim",
        before: |record, call, _| {
            if let (Some(record), Call::Renew(_)) = (record, call) {
                record.abandoned = false;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "renew leaves the expiry",
        after: |Seen { record, call, .. }, written| {
            if let (Some(before), Call::Renew(_), Some(after)) = (record, call, written) {
                after.expires_at = before.expires_at;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "complete ignores the nonce",
        before: |record, call, _| {
            if let (Some(record), Call::Complete(request)) = (record, call) {
                request.owner.nonce = record.nonce.unwrap_or(request.owner.nonce);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "complete ignores the token",
        before: |record, call, _| {
            if let (Some(record), Call::Complete(request)) = (record, call) {
                request.owner.token = record.token;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "the last outcome wins",
        before: |record, call, _| {
            if let (Some(record), Call::Complete(_)) = (record, call)
                && record.state == State::Completed
            {
                record.state = State::InProgress;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "complete is refused when the key is unknown",
        before: |record, call, _| {
            if let (Some(record), Call::Complete(request)) = (record, call)
                && record.state == State::Unknown
            {
                request.owner.token += 1;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "retention counts from the claim",
        after: |Seen { call, .. }, written| {
            if let (Call::Complete(_), Some(after)) = (call, written) {
                after.expires_at = Some(after.claimed_at.after(after.terms.retention));
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "failures are kept like successes",
        after: |Seen { call, now, .. }, written| {
            if let (Call::Complete(_), Some(after)) = (call, written)
                && after.completed_at == Some(now)
            {
                after.expires_at = Some(now.after(after.terms.retention));
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "bodies are text",
        before: |_, call, _| {
            if let Call::Complete(request) = call
                && let Body::Kept(bytes) = request.outcome.body()
            {
                let text = String::from_utf8_lossy(bytes).into_owned();
                request.outcome = Arc::new(Outcome::success(text));
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "labels are lost at completion",
        after: |Seen { call, .. }, written| {
            if let (Call::Complete(_), Some(after)) = (call, written) {
                after.labels = None;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "complete makes a record",
        before: |record, call, _| {
            if let Call::Complete(request) = call {
                record.get_or_insert_with(|| in_progress(&request.owner));
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "renew revives a completed key",
        before: |record, call, _| {
            if let (Some(record), Call::Renew(_)) = (record, call)
                && record.state == State::Completed
            {
                record.state = State::InProgress;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "renew revives an unknown key",
        before: |record, call, _| {
            if let (Some(record), Call::Renew(_)) = (record, call)
                && record.state == State::Unknown
            {
                record.state = State::InProgress;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "complete is refused after the lease",
        before: |record, call, now| {
            if let (Some(record), Call::Complete(request)) = (record, call)
                && record.state == State::InProgress
                && !record.is_leased(now)
            {
                request.owner.token += 1;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "complete is refused when the key is dead",
        before: |record, call, _| {
            if let (Some(record), Call::Complete(request)) = (record, call)
                && record.state == State::Dead
            {
                request.owner.token += 1;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "complete finds an expired record",
        before: |record, call, _| {
            if let (Some(record), Call::Complete(_)) = (record, call) {
                record.expires_at = None;
            }
        },
        ..Flaw::NONE
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
