//! Outcomes that contain their key, payload and run.

use semel_core::{Body, Outcome};
use serde::{Deserialize, Serialize};

use crate::{
    event::{Detail, Hex},
    key::KeyId,
};

/// The content of every outcome, success or failure.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutcomeOrigin {
    pub(super) key: KeyId,
    pub(super) payload: u8,
    pub(super) run: Hex,
    pub(super) padding: String,
}

impl OutcomeOrigin {
    pub(super) fn to_success(&self) -> Outcome {
        Outcome::success(self.text())
    }

    pub(super) fn to_failure(&self) -> Outcome {
        Outcome::failure("refused", self.text())
    }

    fn text(&self) -> String {
        serde_json::to_string(self).expect("an origin has a JSON form")
    }

    fn of(outcome: &Outcome) -> Option<Self> {
        match (outcome.as_failure(), outcome.body()) {
            (Some(failure), _) => serde_json::from_str(&failure.message).ok(),
            (None, Body::Kept(bytes)) => serde_json::from_slice(bytes).ok(),
            (None, Body::Omitted { .. }) => None,
        }
    }
}

/// Describes an outcome for the history.
pub(super) fn describe(outcome: &Outcome) -> Detail {
    let origin = OutcomeOrigin::of(outcome);
    Detail {
        digest: Some(digest(outcome)),
        of: origin.as_ref().map(|origin| origin.key),
        fingerprint: origin.map(|origin| origin.payload),
        ..Detail::default()
    }
}

/// A hash over everything that a replay returns.
pub(super) fn digest(outcome: &Outcome) -> Hex {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&part.len().to_le_bytes()).update(part);
    };
    let (kind, message) = outcome.as_failure().map_or(("", ""), |it| (&it.kind, &it.message));
    add(kind.as_bytes());
    add(message.as_bytes());
    if let Some(head) = outcome.head() {
        add(&head.status.unwrap_or_default().to_le_bytes());
        add(head.content_type.as_deref().unwrap_or_default().as_bytes());
        for header in head.headers.iter().chain(&head.trailers) {
            add(header.name.as_bytes());
            add(&header.value);
        }
    }
    match outcome.body() {
        Body::Kept(bytes) => add(bytes),
        Body::Omitted { length } => add(&length.to_be_bytes()),
    }
    Hex::of(hasher.finalize().as_bytes())
}
