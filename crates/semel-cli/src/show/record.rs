//! Shows one record, for people and for programs.

use semel::{DownstreamKey, Labels, OnLostOwner, Record, Seal, State, Timestamp, seals_of};
use serde_json::{Value, json};

use super::{
    outcome,
    table::TextTable,
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

/// The word for the state of a record at the store's time `now`: an owner may be lost, or have given up.
pub(crate) fn state_now(record: &Record, now: Timestamp) -> &'static str {
    match record.state {
        State::InProgress if record.abandoned => "gave up",
        _ if is_owner_lost(record, now) => "lost owner",
        other => state(other),
    }
}

/// True for a key in progress whose lease is over, unless its owner abandoned it.
pub(crate) fn is_owner_lost(record: &Record, now: Timestamp) -> bool {
    record.state == State::InProgress && !record.abandoned && !record.is_leased(now)
}

/// How much of a record is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShowOptions<'a> {
    /// Show the content of the outcome.
    pub(crate) outcome: bool,
    /// Show the downstream keys derived with these labels.
    pub(crate) derived: &'a [String],
}

/// A record for people: everything but the content of its outcome, unless `options` include it.
pub(crate) fn details(record: &Record, now: Timestamp, options: ShowOptions<'_>) -> String {
    let mut table = TextTable::bare();
    let mut add = |name: &str, value: String| table.row([name.to_owned(), value]);
    add("key", record.key.to_hex());
    add("state", format!("{}{}", state_now(record, now), meaning(record, now)));
    if let Some(keys) = sealed_with(record) {
        add("sealed with", keys);
    }
    if let Some(labels) = clear_labels(record) {
        add("namespace", labels.namespace().to_owned());
        add("principal", or_anonymous(labels.principal()));
        add("operation", labels.operation().to_owned());
        add("id", labels.id().to_owned());
    }
    add("downstream key", DownstreamKey::new(&record.key, "").to_string());
    for label in options.derived {
        add(&format!("derived {label:?}"), DownstreamKey::new(&record.key, label).to_string());
    }
    add("attempts", attempts(record));
    add("token", record.token.to_string());
    add("created", both(record.created_at, now));
    add("claimed", both(record.claimed_at, now));
    if let Some(at) = lease_until(record) {
        add(if at > now { "lease until" } else { "lease over" }, both(at, now));
    }
    for (name, at) in [("completed", record.completed_at), ("expires", record.expires_at)] {
        at.into_iter().for_each(|at| add(name, both(at, now)));
    }
    add("retention", length(record.terms.retention.to_duration()));
    add("on lost owner", lost_owner(record).to_owned());
    if let Some(outcome) = &record.outcome {
        add("outcome", outcome::summary(outcome));
    }
    let text = format!("{table}{}", to_do(record, now));
    match record.outcome.as_ref().filter(|_| options.outcome && !is_sealed(record)) {
        Some(outcome) => format!("{text}\n{}", outcome::text(outcome)),
        None => text,
    }
}

/// What an operator can do about a key that waits for one.
fn to_do(record: &Record, now: Timestamp) -> String {
    let waits = match record.state {
        State::Unknown | State::Dead => true,
        State::InProgress => is_owner_lost(record, now),
        State::Open | State::Completed | State::Erased => false,
    };
    if !waits {
        return String::new();
    }
    let resolve = format!("semel keys resolve {} --token {}", record.key, record.token);
    format!(
        "\nFind out at the receiver, by the downstream key, whether it took effect; then
  {resolve} --complete FILE --reason TEXT   it did: FILE is the body of its response
  {resolve} --fail --reason TEXT            it did not, and is not to be tried again
  {resolve} --rerun --reason TEXT           the next request runs it again\n"
    )
}

/// A record for programs, see [`details`].
pub(crate) fn json(record: &Record, now: Timestamp, options: ShowOptions<'_>) -> Value {
    let labels = clear_labels(record);
    let outcome = match options.outcome && !is_sealed(record) {
        true => record.outcome.as_ref().map(|it| outcome::whole(it)),
        false => record.outcome.as_ref().map(|it| outcome::kind(it)),
    };
    let mut value = json!({
        "key": record.key.to_hex(),
        "state": state(record.state),
        "owner_lost": is_owner_lost(record, now),
        "namespace": labels.map(|it| it.namespace()),
        "principal": labels.map(|it| it.principal()),
        "operation": labels.map(|it| it.operation()),
        "id": labels.map(|it| it.id()),
        "downstream_key": DownstreamKey::new(&record.key, "").as_str(),
        "attempts": record.attempts,
        "max_attempts": record.terms.max_attempts,
        "token": record.token,
        "dirty": record.dirty,
        "abandoned": record.abandoned,
        "contested": record.contested,
        "on_lost_owner": lost_owner(record),
        "created_at": rfc3339(record.created_at),
        "claimed_at": rfc3339(record.claimed_at),
        "lease_until": lease_until(record).and_then(rfc3339),
        "completed_at": record.completed_at.and_then(rfc3339),
        "expires_at": record.expires_at.and_then(rfc3339),
        "outcome": outcome,
        "sealed_with": sealed_with(record),
    });
    for label in options.derived {
        value["derived_keys"][label] = json!(DownstreamKey::new(&record.key, label).as_str());
    }
    value
}

/// When the lease of the owner ends or ended, for a record that has an owner or lost it.
fn lease_until(record: &Record) -> Option<Timestamp> {
    let has_owner = matches!(record.state, State::InProgress | State::Unknown);
    has_owner.then_some(record.lease_until).filter(|at| *at >= record.claimed_at)
}

/// The labels of a record, unless they are sealed.
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

/// The consequence of a state, in a few words.
fn meaning(record: &Record, now: Timestamp) -> String {
    let text = match record.state {
        State::InProgress if record.abandoned && record.is_leased(now) => {
            return format!(": the next request runs, after {}", both(record.lease_until, now));
        }
        State::InProgress if record.contested && record.is_leased(now) => {
            let until = both(record.lease_until, now);
            return format!(
                ": its owner was not heard for a whole lease, and has until {until} to renew it"
            );
        }
        State::Open => ": the next request runs",
        State::InProgress if record.is_leased(now) => ": its owner runs it",
        State::InProgress if record.terms.on_lost_owner == OnLostOwner::Hold => {
            ": it may have happened or not; waits for an operator"
        }
        State::InProgress => ": the next request runs",
        State::Completed => ": retries get its outcome",
        State::Unknown => ": it may have happened or not; waits for an operator",
        State::Dead => ": out of attempts; waits for an operator",
        State::Erased => ": a tombstone that stops retries",
    };
    text.to_owned()
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

#[cfg(test)]
mod tests {
    use semel::{
        AbandonRequest, Claim, ClaimRequest, Fingerprint, KeyHash, MemoryStore, Nonce, Policy,
        Sighting, Store,
    };

    use super::*;

    #[tokio::test]
    async fn an_owner_that_gave_up_is_not_lost() {
        let (store, key) = (MemoryStore::new(), KeyHash::from_bytes([1; 32]));
        let request = ClaimRequest {
            key,
            fingerprint: Fingerprint::of_bytes(b"x"),
            nonce: Nonce::random(),
            terms: Policy::api().terms(),
            labels: None,
        };
        let Ok(Claim::Granted(lease)) = store.claim(&request).await else { panic!("it is taken") };
        let backoff = std::time::Duration::from_secs(60);
        store.abandon(&AbandonRequest { owner: lease.owner, backoff }).await.unwrap();
        let Sighting { record, at } = store.get(&key).await.unwrap().unwrap();
        let options = ShowOptions { outcome: false, derived: &[] };
        let text = details(&record, at, options);
        assert!(text.contains("gave up: the next request runs, after 20"), "{text}");
        let later = Timestamp::from_millis(at.as_millis() + 120_000);
        let text = details(&record, later, options);
        assert!(text.contains("gave up: the next request runs\n"), "{text}");
        assert!(!text.contains("semel keys resolve"), "{text}");
        assert!(!is_owner_lost(&record, later));
        assert_eq!(json(&record, later, options)["owner_lost"], false);
    }
}
