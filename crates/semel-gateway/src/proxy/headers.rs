//! Which headers are forwarded, which are removed, and which are added.

use std::{fmt::Write, net::IpAddr};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT,
        FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA,
    },
};
use semel::http::{
    Idempotency, Mode,
    header::{IDEMPOTENCY_KEY, METHOD_OVERRIDES},
};

use super::ProxyUpstream;
use crate::checked_request::CheckedRequest;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: &str = "x-real-ip";
/// Which attempt at the operation this is, counted from one.
const ATTEMPT: HeaderName = HeaderName::from_static("semel-attempt");
/// The fencing token of the attempt, for a receiver that fences writes.
const TOKEN: HeaderName = HeaderName::from_static("semel-token");
/// The prefix of the gateway's own headers to upstreams; a client may not send them.
const OWN_PREFIX: &str = "semel-";

/// How the headers of a client are forwarded.
#[derive(Clone, Debug)]
pub(crate) struct HeaderRules {
    /// Whether the client's `Forwarded` and `X-Forwarded-*` are kept and added to, not replaced.
    pub(crate) trust_forwarded: bool,
    /// The header that names the caller. The upstream gets it unchanged.
    pub(crate) principal: Option<HeaderName>,
}

/// The prefix of the headers in which proxies describe the client.
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// True for a header that an upstream may take for one of the gateway's: many treat an underscore as a hyphen.
fn is_lookalike(name: &HeaderName) -> bool {
    let text = name.as_str();
    text.contains('_') && {
        let plain = text.replace('_', "-");
        let own = [IDEMPOTENCY_KEY, FORWARDED, HOST, CONTENT_LENGTH, TRANSFER_ENCODING];
        plain.starts_with(OWN_PREFIX)
            || plain.starts_with(FORWARDED_PREFIX)
            || own.iter().any(|name| name.as_str() == plain)
    }
}

/// The most headers that are added; their capacity is reserved once.
const ADDED: usize = 9;

/// True for a header that is for one connection only.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, TE].contains(name)
        || name == "keep-alive"
        || name.as_str().starts_with("proxy-")
}

/// True when `Connection` names an end-to-end header that the gateway or the upstream uses: a client must not have it
/// removed (RFC 9110, 7.6.1). The header `principal` is allowed, since it is forwarded even if `Connection` names it.
pub(crate) fn connection_names_end_to_end(
    headers: &HeaderMap,
    principal: Option<&HeaderName>,
) -> bool {
    const END_TO_END: [HeaderName; 9] = [
        HOST,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        CONTENT_ENCODING,
        IDEMPOTENCY_KEY,
        AUTHORIZATION,
        COOKIE,
        FORWARDED,
        VIA,
    ];
    let is_end_to_end = |name: &HeaderName| {
        let text = name.as_str();
        END_TO_END.contains(name)
            || METHOD_OVERRIDES.contains(name)
            || text.starts_with(OWN_PREFIX)
            || text.starts_with(FORWARDED_PREFIX)
            || text == X_REAL_IP
    };
    named(headers).any(|name| Some(&name) != principal && is_end_to_end(&name))
}

/// The headers that `Connection` names.
fn named(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| name.trim().parse().ok())
}

/// Removes hop-by-hop headers, and those that `Connection` names.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    remove(headers, None, is_hop_by_hop);
}

/// Removes the headers that `Connection` names and those for which `is_removed` is true, but never `kept`.
fn remove(
    headers: &mut HeaderMap,
    kept: Option<&HeaderName>,
    is_removed: impl Fn(&HeaderName) -> bool,
) {
    // The peer must not remove headers of framing and routing, or the key.
    let named =
        named(headers).filter(|name| ![HOST, CONTENT_LENGTH, IDEMPOTENCY_KEY].contains(name));
    let own = headers.keys().filter(|name| is_removed(name)).cloned();
    let out: Vec<HeaderName> = named.chain(own).filter(|name| Some(name) != kept).collect();
    for name in out {
        headers.remove(name);
    }
}

/// Removes trailers that belong into a head: the head has been processed by then.
pub(super) fn filter_trailers(trailers: &mut HeaderMap) {
    let is_for_heads = |name: &HeaderName| {
        let text = name.as_str();
        is_hop_by_hop(name)
            || text.starts_with(OWN_PREFIX)
            || text.starts_with(FORWARDED_PREFIX)
            || is_lookalike(name)
            || [HOST, FORWARDED, VIA, IDEMPOTENCY_KEY].contains(name)
    };
    let out: Vec<HeaderName> = trailers.keys().filter(|it| is_for_heads(it)).cloned().collect();
    for name in out {
        trailers.remove(name);
    }
}

/// Turns the headers of a client into those for `upstream`.
pub(super) fn forward(
    headers: &mut HeaderMap,
    checked: &CheckedRequest,
    upstream: &ProxyUpstream,
    context: Option<&Idempotency>,
    rules: &HeaderRules,
) {
    let trust_forwarded = rules.trust_forwarded;
    let takes_trailers = headers.get_all(TE).iter().any(|line| {
        line.to_str().is_ok_and(|text| text.split(',').any(|it| it.trim() == "trailers"))
    });
    remove(headers, rules.principal.as_ref(), |name| {
        // hyper's server answers `Expect: 100-continue` when the body is read.
        is_hop_by_hop(name)
            || *name == EXPECT
            || name.as_str().starts_with(OWN_PREFIX)
            || (!trust_forwarded
                && (name.as_str().starts_with(FORWARDED_PREFIX) || name == X_REAL_IP))
            || is_lookalike(name)
    });
    headers.reserve(ADDED);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    add_forwarded(headers, checked, trust_forwarded);
    let host = checked.host.as_ref().filter(|_| upstream.preserve_host);
    headers.insert(HOST, host.unwrap_or(&upstream.host).clone());
    if let Some(context) = context {
        add_operation(headers, context);
    }
}

/// Adds the client's address, the host and the protocol. Values from the client are replaced, unless it is trusted.
fn add_forwarded(headers: &mut HeaderMap, checked: &CheckedRequest, trust_forwarded: bool) {
    append(headers, VIA, HeaderValue::from_static("1.1 semel"));
    let proto = HeaderValue::from_static("http");
    let (peer, host) = (checked.client.header_value.clone(), checked.host.clone());
    if trust_forwarded {
        append(headers, X_FORWARDED_FOR, peer);
        append(headers, FORWARDED, forwarded(checked));
        // The values of the first proxy are kept.
        headers.entry(X_FORWARDED_PROTO).or_insert(proto);
        if let Some(host) = host {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
        return;
    }
    headers.insert(X_FORWARDED_FOR, peer);
    headers.insert(FORWARDED, forwarded(checked));
    headers.insert(X_FORWARDED_PROTO, proto);
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// The value of `Forwarded` (RFC 7239).
fn forwarded(checked: &CheckedRequest) -> HeaderValue {
    let host = checked.host.as_ref().and_then(|host| host.to_str().ok());
    let mut text = String::with_capacity(64 + host.map_or(0, str::len));
    let written = match checked.client.ip {
        IpAddr::V4(peer) => write!(text, "for={peer}"),
        IpAddr::V6(peer) => write!(text, "for=\"[{peer}]\""),
    };
    written.expect("writing to a String cannot fail");
    if let Some(host) = host {
        text.push_str(";host=\"");
        text.push_str(host);
        text.push('"');
    }
    text.push_str(";proto=http");
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .expect("a value made of header values is valid")
}

/// Appends a hop to the list of hops in one header.
fn append(headers: &mut HeaderMap, name: HeaderName, hop: HeaderValue) {
    let lines = headers.get_all(&name).iter();
    let before: Vec<&[u8]> = lines.map(HeaderValue::as_bytes).collect();
    if before.is_empty() {
        headers.insert(name, hop);
        return;
    }
    let line = [&before.join(&b", "[..])[..], hop.as_bytes()].join(&b", "[..]);
    let line = HeaderValue::from_bytes(&line).expect("a value made of header values is valid");
    headers.insert(name, line);
}

/// Adds the downstream key, which is the same for every attempt. A route in mode `off` gets it, too: otherwise
/// switching a route off would change the key that the upstream deduplicates by.
fn add_operation(headers: &mut HeaderMap, context: &Idempotency) {
    match context.mode() {
        Mode::Enforce => {}
        Mode::Off if headers.contains_key(IDEMPOTENCY_KEY) => {}
        Mode::Off | Mode::Observe => return,
    }
    let key = HeaderValue::try_from(context.downstream_key().as_str()).expect("a UUID is ASCII");
    headers.insert(IDEMPOTENCY_KEY, key);
    // A run without protection has no attempt number.
    if context.attempt() > 0 {
        headers.insert(ATTEMPT, HeaderValue::from(context.attempt()));
        headers.insert(TOKEN, HeaderValue::from(context.token()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checked_request::ClientAddress, routes::MatchedRoute};

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn forwarded_headers(lines: &[(&'static str, &str)], trust: bool) -> HeaderMap {
        let mut headers = headers(lines);
        let checked = CheckedRequest {
            client: ClientAddress::new("2001:db8::1".parse().unwrap()),
            host: Some(HeaderValue::from_static("shop.example:80")),
            route: MatchedRoute { upstream: 0, template: None },
        };
        let upstream = ProxyUpstream::for_tests("10.0.0.1:3000");
        let rules = HeaderRules { trust_forwarded: trust, principal: None };
        forward(&mut headers, &checked, &upstream, None, &rules);
        headers
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let headers = forwarded_headers(
            &[
                ("connection", "close, X-Secret"),
                ("connection", "x-other"),
                ("x-secret", "1"),
                ("x-other", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-authorization", "x"),
                ("upgrade", "websocket"),
                ("te", "gzip, trailers"),
                ("transfer-encoding", "chunked"),
                ("expect", "100-continue"),
                ("semel-token", "99"),
                ("x-kept", "1"),
            ],
            false,
        );
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let kept = ["forwarded", "host", "te", "via", "x-forwarded-for", "x-forwarded-host"];
        assert_eq!(names, [&kept[..], &["x-forwarded-proto", "x-kept"]].concat());
        assert_eq!(headers[VIA], "1.1 semel");
        assert_eq!(headers[TE], "trailers");
        assert_eq!(headers[HOST], "10.0.0.1:3000");
    }

    #[test]
    fn connection_may_not_name_end_to_end_headers() {
        let ours = |named: &str, principal: Option<&'static str>| {
            let principal = principal.map(HeaderName::from_static);
            connection_names_end_to_end(&headers(&[("connection", named)]), principal.as_ref())
        };
        for bad in ["content-length", "Idempotency-Key", "close , HOST", "semel-x", "x-real-ip"] {
            assert!(ours(bad, None), "{bad}");
        }
        for bad in ["X-HTTP-Method-Override", "x-http-method", "close, X-Method-Override"] {
            assert!(ours(bad, None), "{bad}");
        }
        for good in ["", "close", "keep-alive, te", "x-own", "transfer-encoding", "a b"] {
            assert!(!ours(good, None), "{good}");
        }
        assert!(!ours("authorization", Some("authorization")));
        assert!(ours("authorization, host", Some("authorization")));
    }

    #[test]
    fn where_a_request_came_from_is_replaced_or_added_to() {
        let lines = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "7.7.7.7"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=6.6.6.6"),
        ];
        let headers = forwarded_headers(&lines, false);
        assert_eq!(headers[X_FORWARDED_FOR], "2001:db8::1");
        assert_eq!(headers[X_FORWARDED_PROTO], "http");
        let ours = r#"for="[2001:db8::1]";host="shop.example:80";proto=http"#;
        assert_eq!(headers[FORWARDED], ours);
        let headers = forwarded_headers(&lines, true);
        assert_eq!(headers[X_FORWARDED_FOR], "6.6.6.6, 7.7.7.7, 2001:db8::1");
        assert_eq!(headers[X_FORWARDED_PROTO], "https");
        assert_eq!(headers[FORWARDED], format!("for=6.6.6.6, {ours}"));
    }
}
