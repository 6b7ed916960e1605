//! What was asked: method, path, query, content type and body.

use bytes::Bytes;
use http::{header::CONTENT_TYPE, request::Parts};
use semel_core::Fingerprint;

use crate::{canonical::canonical, policy::BodyFingerprint, template::uri};

/// The scope has the route template only, so the concrete path must be here: `/orders/1/refund` is not
/// `/orders/2/refund`.
pub(crate) fn fingerprint(parts: &Parts, body: &Bytes, how: &BodyFingerprint) -> Fingerprint {
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let target = uri(parts).path_and_query().map_or("/", |target| target.as_str());
    let of = |kind: &[u8], body: &[u8]| {
        let method = parts.method.as_str().as_bytes();
        Fingerprint::of_parts(&[b"http", method, target.as_bytes(), content_type, kind, body])
    };
    match how {
        BodyFingerprint::Raw => of(b"raw", body),
        BodyFingerprint::Json(left_out) => match canonical(body, left_out) {
            Some(json) => of(b"json", &json),
            None => of(b"raw", body),
        },
    }
}
