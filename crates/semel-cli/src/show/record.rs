//! A record.

use semel::{Labels, OnLostOwner, Record, Seal, State, Timestamp, seals_of};
use serde_json::{Value, json};

use super::{
    outcome,
    table::Table,
    time::{both, length, rfc3339},
};

/// The word for a state.
pub(crate) const fn state(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::InProgress => "in-progress",
        State::Completed => "completed",
        State::Unknown => "unknown",
        State::Dead => "dead",
        State::Erased => "erased",
    }
}

/// Everything about a record but what it holds, for people.
pub(crate) fn details(record: &Record, now: Timestamp, with_outcome: bool) -> String {
    let mut table = Table::bare();
    let mut add = |name: &str, value: String| table.row([name.to_owned(), value]);
    add("key", record.key.to_hex());
    add("state", format!("{}{}", state(record.state), meaning(record, now)));
    if let Some(keys) = sealed_with(record) {
        add("sealed with", keys);
    }
    if let Some(labels) = clear_labels(record) {
        add("namespace", labels.namespace().to_owned());
        add("principal", or_anonymous(labels.principal()));
        add("operation", labels.operation().to_owned());
        add("id", labels.id().to_owned());
    }
    add("attempts", attempts(record));
    add("token", record.token.to_string());
    add("created", both(record.created_at, now));
    add("claimed", both(record.claimed_at, now));
    if record.state == State::InProgress {
        add("lease until", both(record.lease_until, now));
    }
    for (name, at) in [("completed", record.completed_at), ("expires", record.expires_at)] {
        at.into_iter().for_each(|at| add(name, both(at, now)));
    }
    add("retention", length(record.terms.retention.to_duration()));
    add("lost owner", lost_owner(record).to_owned());
    if let Some(outcome) = &record.outcome {
        add("outcome", outcome::summary(outcome));
    }
    let text = table.to_string();
    match record.outcome.as_ref().filter(|_| with_outcome && !is_sealed(record)) {
        Some(outcome) => format!("{text}\n{}", outcome::text(outcome)),
        None => text,
    }
}

/// The same for programs.
pub(crate) fn json(record: &Record, with_outcome: bool) -> Value {
    let labels = clear_labels(record);
    let outcome = match with_outcome && !is_sealed(record) {
        true => record.outcome.as_ref().map(|it| outcome::whole(it)),
        false => record.outcome.as_ref().map(|it| outcome::kind(it)),
    };
    json!({
        "key": record.key.to_hex(),
        "state": state(record.state),
        "namespace": labels.map(|it| it.namespace()),
        "principal": labels.map(|it| it.principal()),
        "operation": labels.map(|it| it.operation()),
        "id": labels.map(|it| it.id()),
        "attempts": record.attempts,
        "max_attempts": record.terms.max_attempts,
        "token": record.token,
        "dirty": record.dirty,
        "abandoned": record.abandoned,
        "on_lost_owner": lost_owner(record),
        "created_at": rfc3339(record.created_at),
        "claimed_at": rfc3339(record.claimed_at),
        "lease_until": (record.state == State::InProgress).then(|| rfc3339(record.lease_until)),
        "completed_at": record.completed_at.and_then(rfc3339),
        "expires_at": record.expires_at.and_then(rfc3339),
        "outcome": outcome,
        "sealed_with": sealed_with(record),
    })
}

/// Labels that can be read.
pub(crate) fn clear_labels(record: &Record) -> Option<&Labels> {
    record.labels.as_ref().filter(|_| seals_of(record).labels == Seal::Clear)
}

/// The keys that this record has to be opened with, if it is still sealed.
pub(crate) fn sealed_with(record: &Record) -> Option<String> {
    let seals = seals_of(record);
    let ids = seals.ids();
    (!ids.is_empty()).then(|| ids.join(", "))
}

fn is_sealed(record: &Record) -> bool {
    record.outcome.as_ref().is_some_and(|outcome| outcome.is_sealed())
}

pub(crate) fn or_anonymous(principal: &str) -> String {
    if principal.is_empty() { "(anonymous)".to_owned() } else { principal.to_owned() }
}

/// What follows from a state, in a few words.
fn meaning(record: &Record, now: Timestamp) -> &'static str {
    match record.state {
        State::Open => ": the next request runs",
        State::InProgress if record.is_leased(now) => ": somebody runs it",
        State::InProgress if record.terms.on_lost_owner == OnLostOwner::Hold => {
            ": its owner was lost; waits for an operator"
        }
        State::InProgress => ": its owner was lost; the next request runs",
        State::Completed => ": retries get its outcome",
        State::Unknown => ": it may have happened or not; waits for an operator",
        State::Dead => ": out of attempts",
        State::Erased => ": a tombstone that stops retries",
    }
}

fn attempts(record: &Record) -> String {
    match record.terms.max_attempts {
        Some(most) => format!("{} of {most}", record.attempts),
        None => record.attempts.to_string(),
    }
}

const fn lost_owner(record: &Record) -> &'static str {
    match record.terms.on_lost_owner {
        OnLostOwner::Rerun => "rerun",
        OnLostOwner::Hold => "hold",
    }
}
