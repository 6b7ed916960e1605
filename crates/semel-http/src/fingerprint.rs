//! What was asked: method, path, query, content type, body, and headers that a policy names.

use bytes::Bytes;
use http::{HeaderName, header::CONTENT_TYPE, request::Parts};
use semel_core::Fingerprint;

use crate::{RoutePolicy, canonical::canonical, policy::BodyFingerprint, template::uri};

/// The scope has the route template only, so the concrete path must be here: `/orders/1/refund` is not
/// `/orders/2/refund`.
pub(crate) fn fingerprint(parts: &Parts, body: &Bytes, policy: &RoutePolicy) -> Fingerprint {
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let target = uri(parts).path_and_query().map_or("/", |target| target.as_str());
    let of = |kind: &[u8], body: &[u8]| {
        let method = parts.method.as_str().as_bytes();
        let asked = [b"http", method, target.as_bytes(), content_type, kind, body];
        if policy.compare_headers.is_empty() {
            return Fingerprint::of_parts(&asked);
        }
        let headers: Vec<_> =
            policy.compare_headers.iter().map(|name| lines(parts, name)).collect();
        let headers = headers.iter().map(Vec::as_slice);
        Fingerprint::of_parts(&asked.into_iter().chain(headers).collect::<Vec<_>>())
    };
    match &policy.body {
        BodyFingerprint::Raw => of(b"raw", body),
        BodyFingerprint::Json(left_out) => match canonical(body, left_out) {
            Some(json) => of(b"json", &json),
            None => of(b"raw", body),
        },
    }
}

/// All lines of a header, each behind a byte that is in none of them: no line is not an empty one.
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
    fn headers_count_where_the_policy_says_so() {
        let plain = RoutePolicy::api();
        assert_eq!(of(&plain, &["a"]), of(&plain, &["b"]));
        let strict = RoutePolicy::api().compare_header(HeaderName::from_static("x-tenant"));
        let asked: [&[&str]; 5] = [&[], &[""], &["a"], &["a", ""], &["", "a"]];
        for (place, one) in asked.iter().enumerate() {
            for (other_place, other) in asked.iter().enumerate() {
                let same = of(&strict, one) == of(&strict, other);
                assert_eq!(same, place == other_place, "{one:?} {other:?}");
            }
        }
    }
}
