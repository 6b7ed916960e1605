//! The key and the fingerprint under which a request is claimed, and which part of it differs from the
//! request that used the key before.

use bytes::Bytes;
use http::request::Parts;
use semel_core::{
    DetailedFingerprint, Fingerprint, Key, PartDigests, RecordedDigests, RecordedRequest, Scope,
};

use crate::{
    fingerprint::{PART_NAMES, changes_meaning, fingerprint, parts_of},
    plan::Route,
    problem::Problem,
};

/// What a request is claimed under.
pub(crate) struct Identity {
    pub(crate) key: Key,
    fingerprint: Fingerprint,
    digests: PartDigests,
    /// Claimed as an earlier build would have: its records have no digests.
    is_earlier: bool,
}

impl Identity {
    pub(crate) fn new(route: &Route, key: Key, parts: &Parts, body: &Bytes) -> Self {
        let fingerprint = fingerprint(parts, body, &route.policy);
        Self { key, fingerprint, digests: digests(route, parts), is_earlier: false }
    }

    /// The identity of a request to which earlier builds gave another fingerprint and, where there is an
    /// `earlier_scope`, another key: theirs, if there is a record of theirs.
    pub(crate) async fn or_earlier(
        route: &Route,
        key: Key,
        earlier_scope: Option<Scope>,
        earlier: Fingerprint,
        parts: &Parts,
        body: &Bytes,
    ) -> Self {
        let earlier_key = earlier_scope.and_then(|scope| key.in_scope(&scope).ok());
        let moved = earlier_key.is_some();
        let earlier_key = earlier_key.unwrap_or_else(|| key.clone());
        // A store that does not answer says so again when the key is claimed.
        match route.engine.recorded_request(&earlier_key, &earlier).await {
            Ok(Some(record)) if is_of_earlier_build(&record, moved, parts) => Self {
                key: earlier_key,
                fingerprint: earlier,
                digests: digests(route, parts),
                is_earlier: true,
            },
            _ => Self::new(route, key, parts, body),
        }
    }

    pub(crate) fn detailed(&self) -> DetailedFingerprint {
        match self.is_earlier {
            true => self.fingerprint.into(),
            false => DetailedFingerprint::new(self.fingerprint, self.digests),
        }
    }

    /// The answer to a request whose key stands for another one. It names the parts that differ, as far
    /// as the record knows them, and never a value.
    pub(crate) async fn mismatch(&self, route: &Route) -> Problem {
        let problem = Problem::mismatch(&route.policy);
        let found = route.engine.recorded_request(&self.key, &self.fingerprint).await;
        let Ok(Some(RecordedRequest { parts: RecordedDigests::Known(recorded), .. })) = found
        else {
            return problem;
        };
        let names = recorded.differing(&self.digests).filter_map(|place| PART_NAMES.get(place));
        let mut names: Vec<&'static str> = names.copied().collect();
        if names.is_empty() {
            names.push("body");
        }
        problem.differs(names)
    }
}

fn digests(route: &Route, parts: &Parts) -> PartDigests {
    let named = parts_of(parts, &route.policy);
    route.engine.part_digests(&named.each_ref().map(|part| &**part))
}

/// Whether an earlier build made a record that is found where it would have put this request. New records
/// there have digests, and those with the fingerprint of an encoded body have another one than a plain body
/// of the same bytes: an earlier build could not tell these two apart, which must not go on.
fn is_of_earlier_build(record: &RecordedRequest, moved: bool, parts: &Parts) -> bool {
    match record.parts {
        RecordedDigests::Known(_) | RecordedDigests::Outdated => false,
        RecordedDigests::Missing => true,
        // Nothing tells the builds apart but the key, or a fingerprint that no new record has.
        RecordedDigests::Redacted => moved || (record.same_fingerprint && !changes_meaning(parts)),
    }
}
