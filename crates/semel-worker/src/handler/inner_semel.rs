//! The problems of a semel in front of the handler, such as `semel gateway`: they say whether anything happened.

use http::{StatusCode, response::Parts};
use semel::http::header::SEMEL_STATUS;

use super::response::Meaning;

/// What a problem means for the event, by its name in `Semel-Status` and the status that it comes with.
#[rustfmt::skip]
const PROBLEMS: [(&str, StatusCode, Meaning); 26] = [
    ("attempts-exhausted", StatusCode::CONFLICT, Meaning::NoEffect),
    ("body-timeout", StatusCode::REQUEST_TIMEOUT, Meaning::NoEffect),
    ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE, Meaning::NoEffect),
    ("body-unreadable", StatusCode::BAD_REQUEST, Meaning::NoEffect),
    ("connection-invalid", StatusCode::BAD_REQUEST, Meaning::NoEffect),
    ("erased", StatusCode::GONE, Meaning::NoEffect),
    (MISMATCH, StatusCode::CONFLICT, Meaning::NoEffect),
    ("in-progress", StatusCode::CONFLICT, Meaning::NoEffect),
    ("key-invalid", StatusCode::BAD_REQUEST, Meaning::NoEffect),
    ("key-missing", StatusCode::BAD_REQUEST, Meaning::NoEffect),
    ("length-required", StatusCode::LENGTH_REQUIRED, Meaning::NoEffect),
    ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, Meaning::NoEffect),
    ("no-route", StatusCode::NOT_FOUND, Meaning::NoEffect),
    ("overloaded", StatusCode::SERVICE_UNAVAILABLE, Meaning::NoEffect),
    ("principal-missing", StatusCode::UNAUTHORIZED, Meaning::NoEffect),
    ("replay-forbidden", StatusCode::FORBIDDEN, Meaning::NoEffect),
    ("shutting-down", StatusCode::SERVICE_UNAVAILABLE, Meaning::NoEffect),
    ("store-full", StatusCode::SERVICE_UNAVAILABLE, Meaning::NoEffect),
    ("store-unavailable", StatusCode::SERVICE_UNAVAILABLE, Meaning::NoEffect),
    ("target-invalid", StatusCode::BAD_REQUEST, Meaning::NoEffect),
    ("upstream-unreachable", StatusCode::BAD_GATEWAY, Meaning::NoEffect),
    ("attempt-failed", StatusCode::INTERNAL_SERVER_ERROR, Meaning::Retry),
    ("outcome-unknown", StatusCode::CONFLICT, Meaning::Retry),
    ("upstream-failed", StatusCode::BAD_GATEWAY, Meaning::Retry),
    ("upstream-timeout", StatusCode::GATEWAY_TIMEOUT, Meaning::Retry),
    // The operation ran, and the inner semel has recorded that.
    ("upstream-head-too-large", StatusCode::BAD_GATEWAY, Meaning::Final),
];

const MISMATCH: &str = "fingerprint-mismatch";

/// The name of the problem, and what it means. Any other value of `Semel-Status` is the handler's own and is ignored.
pub(super) fn problem(head: &Parts) -> Option<(&'static str, Meaning)> {
    let mut values = head.headers.get_all(SEMEL_STATUS).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (name, status, meaning) = PROBLEMS.iter().find(|(name, ..)| value == name)?;
    let fits = match *name {
        // The status is a setting of the inner semel.
        MISMATCH => head.status.is_client_error(),
        _ => head.status == *status,
    };
    fits.then_some((*name, *meaning))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_published_problem_is_known() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems");
        let pages = fs::read_dir(pages).unwrap().map(|page| page.unwrap().path());
        let names = pages.map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned());
        let names: Vec<_> = names.filter(|name| name != "README").collect();
        assert_eq!(names.len(), PROBLEMS.len());
        for name in names {
            assert!(PROBLEMS.iter().any(|(known, ..)| *known == name), "{name}");
        }
    }
}
