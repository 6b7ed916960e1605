//! What goes on to the next hop, and what ends here.

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
/// Orders the attempts, for a receiver that fences writes.
const TOKEN: HeaderName = HeaderName::from_static("semel-token");
/// What the gateway says to upstreams; a client may not say it in its name.
const OURS: &str = "semel-";

/// How the head of a client is read.
#[derive(Clone, Debug)]
pub(crate) struct HeaderRules {
    /// What the client says of where the request came from is added to, not replaced.
    pub(crate) trust_forwarded: bool,
    /// The header that names the caller. The upstream gets it as it came.
    pub(crate) principal: Option<HeaderName>,
}

/// What proxies say of where a request came from.
const FROM: &str = "x-forwarded-";

/// Many an upstream takes an underscore for a hyphen, and so what a client says for what we say.
fn is_lookalike(name: &HeaderName) -> bool {
    let text = name.as_str();
    text.contains('_') && {
        let plain = text.replace('_', "-");
        let ours = [IDEMPOTENCY_KEY, FORWARDED, HOST, CONTENT_LENGTH, TRANSFER_ENCODING];
        plain.starts_with(OURS)
            || plain.starts_with(FROM)
            || ours.iter().any(|name| name.as_str() == plain)
    }
}

/// How many headers are added at most: room for them is made once.
const ADDED: usize = 9;

/// What only the connection at hand is about.
fn is_of_the_hop(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, TE].contains(name)
        || name == "keep-alive"
        || name.as_str().starts_with("proxy-")
}

/// True when `Connection` names a header that is for the upstream: the gateway or the upstream goes by it, so
/// a client must not have it taken away (RFC 9110, 7.6.1). `principal`, which names the caller, is no reason to
/// refuse a request: it is passed on whatever `Connection` names.
pub(crate) fn connection_names_ours(headers: &HeaderMap, principal: Option<&HeaderName>) -> bool {
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
    let is_ours = |name: &HeaderName| {
        let text = name.as_str();
        END_TO_END.contains(name)
            || METHOD_OVERRIDES.contains(name)
            || text.starts_with(OURS)
            || text.starts_with(FROM)
            || text == X_REAL_IP
    };
    named(headers).any(|name| Some(&name) != principal && is_ours(&name))
}

/// What `Connection` names.
fn named(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| name.trim().parse().ok())
}

/// Takes out what is for this hop alone, and whatever `Connection` names beside it.
pub(super) fn end_hop(headers: &mut HeaderMap) {
    remove(headers, None, is_of_the_hop);
}

/// Takes out what is for this hop, or otherwise `not_for_others`; never `kept`.
fn remove(
    headers: &mut HeaderMap,
    kept: Option<&HeaderName>,
    not_for_others: impl Fn(&HeaderName) -> bool,
) {
    // Framing, routing and our own are not the peer's to take away.
    let named =
        named(headers).filter(|name| ![HOST, CONTENT_LENGTH, IDEMPOTENCY_KEY].contains(name));
    let own = headers.keys().filter(|name| not_for_others(name)).cloned();
    let out: Vec<HeaderName> = named.chain(own).filter(|name| Some(name) != kept).collect();
    for name in out {
        headers.remove(name);
    }
}

/// Leaves in trailers what may come after a body: nothing that a head was already acted on for.
pub(super) fn trail(trailers: &mut HeaderMap) {
    let is_for_heads = |name: &HeaderName| {
        let text = name.as_str();
        is_of_the_hop(name)
            || text.starts_with(OURS)
            || text.starts_with(FROM)
            || is_lookalike(name)
            || [HOST, FORWARDED, VIA, IDEMPOTENCY_KEY].contains(name)
    };
    let out: Vec<HeaderName> = trailers.keys().filter(|it| is_for_heads(it)).cloned().collect();
    for name in out {
        trailers.remove(name);
    }
}

/// Makes a client's head one for `upstream`.
pub(super) fn forward(
    headers: &mut HeaderMap,
    arrival: &CheckedRequest,
    upstream: &ProxyUpstream,
    context: Option<&Idempotency>,
    rules: &HeaderRules,
) {
    let trust_forwarded = rules.trust_forwarded;
    let takes_trailers = headers.get_all(TE).iter().any(|line| {
        line.to_str().is_ok_and(|text| text.split(',').any(|it| it.trim() == "trailers"))
    });
    remove(headers, rules.principal.as_ref(), |name| {
        // Our own server answers an expectation, when the body is asked for.
        is_of_the_hop(name)
            || *name == EXPECT
            || name.as_str().starts_with(OURS)
            || (!trust_forwarded && (name.as_str().starts_with(FROM) || name == X_REAL_IP))
            || is_lookalike(name)
    });
    headers.reserve(ADDED);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    tell_origin(headers, arrival, trust_forwarded);
    let host = arrival.host.as_ref().filter(|_| upstream.preserve_host);
    headers.insert(HOST, host.unwrap_or(&upstream.host).clone());
    if let Some(context) = context {
        tell_operation(headers, context);
    }
}

/// Who asked, for what host, and how. What the client says of itself is replaced, unless it is trusted.
fn tell_origin(headers: &mut HeaderMap, arrival: &CheckedRequest, trust_forwarded: bool) {
    append(headers, VIA, HeaderValue::from_static("1.1 semel"));
    let proto = HeaderValue::from_static("http");
    let (peer, host) = (arrival.peer.value.clone(), arrival.host.clone());
    if trust_forwarded {
        append(headers, X_FORWARDED_FOR, peer);
        append(headers, FORWARDED, forwarded(arrival));
        // The first proxy knows these best.
        headers.entry(X_FORWARDED_PROTO).or_insert(proto);
        if let Some(host) = host {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
        return;
    }
    headers.insert(X_FORWARDED_FOR, peer);
    headers.insert(FORWARDED, forwarded(arrival));
    headers.insert(X_FORWARDED_PROTO, proto);
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// RFC 7239.
fn forwarded(arrival: &CheckedRequest) -> HeaderValue {
    let host = arrival.host.as_ref().and_then(|host| host.to_str().ok());
    let mut text = String::with_capacity(64 + host.map_or(0, str::len));
    let written = match arrival.peer.address {
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
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("what came in headers goes in headers")
}

/// One line with all hops, the last at its end.
fn append(headers: &mut HeaderMap, name: HeaderName, hop: HeaderValue) {
    let lines = headers.get_all(&name).iter();
    let before: Vec<&[u8]> = lines.map(HeaderValue::as_bytes).collect();
    if before.is_empty() {
        headers.insert(name, hop);
        return;
    }
    let line = [&before.join(&b", "[..])[..], hop.as_bytes()].join(&b", "[..]);
    let line = HeaderValue::from_bytes(&line).expect("what came in headers goes in headers");
    headers.insert(name, line);
}

/// The key to deduplicate on, which is the same on every attempt; and on a route that is off, or else
/// switching it off would change what the upstream deduplicates on.
fn tell_operation(headers: &mut HeaderMap, context: &Idempotency) {
    match context.mode() {
        Mode::Enforce => {}
        Mode::Off if headers.contains_key(IDEMPOTENCY_KEY) => {}
        Mode::Off | Mode::Observe => return,
    }
    let key = HeaderValue::try_from(context.downstream_key().as_str()).expect("a UUID is ASCII");
    headers.insert(IDEMPOTENCY_KEY, key);
    // A run without protection is not counted.
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
        let arrival = CheckedRequest {
            peer: ClientAddress::new("2001:db8::1".parse().unwrap()),
            host: Some(HeaderValue::from_static("shop.example:80")),
            found: MatchedRoute { upstream: 0, template: None },
        };
        let upstream = ProxyUpstream::for_tests("10.0.0.1:3000");
        let rules = HeaderRules { trust_forwarded: trust, principal: None };
        forward(&mut headers, &arrival, &upstream, None, &rules);
        headers
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let seen = forwarded_headers(
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
        let mut names: Vec<_> = seen.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let kept = ["forwarded", "host", "te", "via", "x-forwarded-for", "x-forwarded-host"];
        assert_eq!(names, [&kept[..], &["x-forwarded-proto", "x-kept"]].concat());
        assert_eq!(seen[VIA], "1.1 semel");
        assert_eq!(seen[TE], "trailers");
        assert_eq!(seen[HOST], "10.0.0.1:3000");
    }

    #[test]
    fn connection_may_not_name_end_to_end_headers() {
        let ours = |named: &str, principal: Option<&'static str>| {
            let principal = principal.map(HeaderName::from_static);
            connection_names_ours(&headers(&[("connection", named)]), principal.as_ref())
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
        let seen = forwarded_headers(&lines, false);
        assert_eq!(seen[X_FORWARDED_FOR], "2001:db8::1");
        assert_eq!(seen[X_FORWARDED_PROTO], "http");
        let ours = r#"for="[2001:db8::1]";host="shop.example:80";proto=http"#;
        assert_eq!(seen[FORWARDED], ours);
        let seen = forwarded_headers(&lines, true);
        assert_eq!(seen[X_FORWARDED_FOR], "6.6.6.6, 7.7.7.7, 2001:db8::1");
        assert_eq!(seen[X_FORWARDED_PROTO], "https");
        assert_eq!(seen[FORWARDED], format!("for=6.6.6.6, {ours}"));
    }
}
