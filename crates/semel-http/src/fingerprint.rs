//! The fingerprint of a request: method, path, query, content type and encoding, body, and the headers that a
//! policy names.
//!
//! Earlier versions hashed less: they took `/%61bc` and `/abc` for two paths, and ignored `Content-Encoding` and
//! `X-HTTP-Method-Override`. A request without any of these still has the same fingerprint, so that nodes of both
//! versions agree on it. For the other requests, [`earlier_fingerprint`] computes the fingerprint of an earlier
//! version, so that its records still replay.

use std::borrow::Cow;

use bytes::Bytes;
use http::{
    HeaderName,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HOST},
    request::Parts,
};
use semel_core::Fingerprint;

use crate::{
    RoutePolicy, canonical::canonical, header::METHOD_OVERRIDES, normal_path,
    policy::BodyFingerprint, template::uri,
};

/// The names of the parts of a request in a problem, in the order of [`parts_of`].
pub(crate) const PART_NAMES: [&str; 7] =
    ["method", "path", "query", "host", "content type", "content encoding", "headers"];

/// The parts of a request that can differ while its key is the same, without the body: if none of these
/// differs, the body does. A part is empty if the request or the policy does not have it.
pub(crate) fn parts_of<'a>(parts: &'a Parts, policy: &RoutePolicy) -> [Cow<'a, [u8]>; 7] {
    let uri = uri(parts);
    // The index distinguishes the headers, and `?` distinguishes an empty query from none.
    let others = policy.compare_headers.iter().zip(0u8..).filter(|(name, _)| **name != HOST);
    let others = others.flat_map(|(name, index)| match lines(parts, name) {
        lines if lines.is_empty() => lines,
        lines => [vec![index], lines].concat(),
    });
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    let query = target.find('?').map_or("", |at| &target[at..]);
    let host = policy.compare_headers.contains(&HOST).then(|| lines(parts, &HOST));
    [
        Cow::Owned(method_overrides(parts)),
        match normal_path(uri.path()) {
            Cow::Borrowed(path) => Cow::Borrowed(path.as_bytes()),
            Cow::Owned(path) => Cow::Owned(path.into_bytes()),
        },
        Cow::Borrowed(query.as_bytes()),
        Cow::Owned(host.unwrap_or_default()),
        Cow::Borrowed(content_type(parts)),
        Cow::Owned(content_encoding(parts)),
        Cow::Owned(others.collect()),
    ]
}

/// The scope has only the route template, so the fingerprint must have the concrete path: `/orders/1/refund` is
/// not `/orders/2/refund`.
pub(crate) fn fingerprint(parts: &Parts, body: &Bytes, policy: &RoutePolicy) -> Fingerprint {
    let uri = uri(parts);
    let target = match (normal_path(uri.path()), uri.path_and_query()) {
        (Cow::Owned(path), _) => Cow::Owned(match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path,
        }),
        (Cow::Borrowed(_), target) => Cow::Borrowed(target.map_or("/", |target| target.as_str())),
    };
    let mut added: Vec<(&[u8], Vec<u8>)> = Vec::new();
    if is_encoded(parts) {
        added.push((b"content-encoding", content_encoding(parts)));
    }
    if overrides_method(parts) {
        added.push((b"method", method_overrides(parts)));
    }
    of(&target, parts, body, policy, &added)
}

/// The fingerprint that earlier versions gave this request, if it is a different one.
pub(crate) fn earlier_fingerprint(
    parts: &Parts,
    body: &Bytes,
    policy: &RoutePolicy,
) -> Option<Fingerprint> {
    let respelt = matches!(normal_path(uri(parts).path()), Cow::Owned(_));
    (respelt || changes_meaning(parts)).then(|| {
        let target = uri(parts).path_and_query().map_or("/", |target| target.as_str());
        of(target, parts, body, policy, &[])
    })
}

/// True for a request whose headers change what its method or body means. Earlier versions took it for the
/// same request without those headers.
pub(crate) fn changes_meaning(parts: &Parts) -> bool {
    is_encoded(parts) || overrides_method(parts)
}

fn of(
    target: &str,
    parts: &Parts,
    body: &Bytes,
    policy: &RoutePolicy,
    added: &[(&[u8], Vec<u8>)],
) -> Fingerprint {
    let of = |kind: &[u8], body: &[u8]| {
        let method = parts.method.as_str().as_bytes();
        let request = [b"http", method, target.as_bytes(), content_type(parts), kind, body];
        if policy.compare_headers.is_empty() && added.is_empty() {
            return Fingerprint::of_parts(&request);
        }
        let headers: Vec<_> =
            policy.compare_headers.iter().map(|name| lines(parts, name)).collect();
        let headers = headers.iter().map(Vec::as_slice);
        // A name cannot be taken for the lines of a header: those are empty, or begin with a zero byte.
        let added = added.iter().flat_map(|(name, value)| [*name, value.as_slice()]);
        Fingerprint::of_parts(&request.into_iter().chain(headers).chain(added).collect::<Vec<_>>())
    };
    match &policy.body {
        BodyFingerprint::Raw => of(b"raw", body),
        BodyFingerprint::Json(left_out) => match canonical(body, left_out) {
            Some(json) => of(b"json", &json),
            None => of(b"raw", body),
        },
    }
}

fn content_type(parts: &Parts) -> &[u8] {
    parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes())
}

fn is_encoded(parts: &Parts) -> bool {
    parts.headers.contains_key(CONTENT_ENCODING)
}

/// In lower case: names of encodings are case-insensitive.
fn content_encoding(parts: &Parts) -> Vec<u8> {
    lines(parts, &CONTENT_ENCODING).to_ascii_lowercase()
}

fn overrides_method(parts: &Parts) -> bool {
    METHOD_OVERRIDES.iter().any(|name| parts.headers.contains_key(name))
}

fn method_overrides(parts: &Parts) -> Vec<u8> {
    if !overrides_method(parts) {
        return Vec::new();
    }
    // The index distinguishes the headers: two frameworks may read different ones.
    let each = METHOD_OVERRIDES.into_iter().zip(1u8..);
    each.flat_map(|(name, index)| [vec![index], lines(parts, &name)].concat()).collect()
}

/// All lines of a header, each after a zero byte, which no line contains. So an empty line differs from none.
fn lines(parts: &Parts, name: &HeaderName) -> Vec<u8> {
    let lines = parts.headers.get_all(name).iter();
    lines.flat_map(|line| [0].into_iter().chain(line.as_bytes().iter().copied())).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(policy: &RoutePolicy, tenants: &[&str]) -> Fingerprint {
        let request = Request::post("/");
        let request = tenants.iter().fold(request, |request, it| request.header("x-tenant", *it));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        fingerprint(&parts, &Bytes::new(), policy)
    }

    #[test]
    fn only_headers_that_the_policy_names_are_compared() {
        let plain = RoutePolicy::api();
        assert_eq!(of(&plain, &["a"]), of(&plain, &["b"]));
        let strict = RoutePolicy::api().compare_header(HeaderName::from_static("x-tenant"));
        let tenants: [&[&str]; 5] = [&[], &[""], &["a"], &["a", ""], &["", "a"]];
        for (index, one) in tenants.iter().enumerate() {
            for (other_index, other) in tenants.iter().enumerate() {
                let same = of(&strict, one) == of(&strict, other);
                assert_eq!(same, index == other_index, "{one:?} {other:?}");
            }
        }
    }
}
