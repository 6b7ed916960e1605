//! The 409 (or 422) for a key that is already used for another request.

use semel_core::{RecordedDigests, RecordedRequest};

use crate::{
    fingerprint::PART_NAMES, identity::RequestIdentity, problem::Problem, state::PreparedRoute,
};

/// The answer to a request whose key was used for another request. It names the parts that differ, as far as
/// the record has their digests, and never a value.
pub(crate) async fn problem(identity: &RequestIdentity, route: &PreparedRoute) -> Problem {
    let problem = Problem::mismatch(&route.policy);
    let recorded = route.engine.recorded_request(&identity.key, &identity.fingerprint).await;
    let Ok(Some(RecordedRequest {
        same_fingerprint: false,
        parts: RecordedDigests::Known(recorded),
    })) = recorded
    else {
        // This includes a key that has passed to this very request in the meantime.
        return problem;
    };
    let names = recorded.differing(&identity.digests).filter_map(|index| PART_NAMES.get(index));
    let mut names: Vec<&'static str> = names.copied().collect();
    if names.is_empty() {
        names.push("body");
    }
    problem.differs(names)
}
