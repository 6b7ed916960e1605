//! The head of a request, before anybody acts on it: what it asks for must have one meaning.

use std::net::IpAddr;

use http::{
    HeaderName, HeaderValue, Method, Uri, Version,
    header::{CONTENT_LENGTH, HOST},
    request::Parts,
    uri::Authority,
};
use semel::http::Problem;

use super::{
    proxy::connection_names_ours,
    routes::{MatchedRoute, Routes},
};

/// What the proxy has to know beside the request itself. In its extensions.
#[derive(Clone, Debug)]
pub(super) struct CheckedRequest {
    pub(super) peer: ClientAddress,
    pub(super) host: Option<HeaderValue>,
    pub(super) found: MatchedRoute,
}

/// A client, as headers name it.
#[derive(Clone, Debug)]
pub(super) struct ClientAddress {
    pub(super) address: IpAddr,
    pub(super) value: HeaderValue,
}

impl ClientAddress {
    pub(super) fn new(address: IpAddr) -> Self {
        let value = HeaderValue::try_from(address.to_string()).expect("an address is ASCII");
        Self { address, value }
    }
}

impl CheckedRequest {
    /// Puts the target into its plain form and finds its route, or says why not.
    pub(super) fn of(
        parts: &mut Parts,
        peer: &ClientAddress,
        routes: &Routes,
        principal: Option<&HeaderName>,
    ) -> Result<Self, Problem> {
        if matches!(parts.method, Method::CONNECT | Method::TRACE) {
            return Err(Problem::method_not_allowed());
        }
        if is_misspelt(&parts.method) {
            let detail = "nothing ran; methods are written in capitals";
            return Err(Problem::method_not_allowed().detail(detail));
        }
        // Its body would end with the connection: half of one could not be told from a whole one.
        if parts.version < Version::HTTP_11
            && !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS)
            && !parts.headers.contains_key(CONTENT_LENGTH)
        {
            return Err(Problem::length_required());
        }
        if connection_names_ours(&parts.headers, principal) {
            return Err(Problem::connection_invalid());
        }
        let host = host(parts)?;
        if let Some(plain) = host.as_ref().and_then(in_small_letters) {
            // Hosts are compared, and have no case.
            parts.headers.insert(HOST, plain);
        }
        make_plain(parts, host.as_ref())?;
        let found = routes.find(&parts.method, parts.uri.path()).ok_or_else(Problem::no_route)?;
        Ok(Self { peer: peer.clone(), host, found })
    }
}

/// An upstream that does not mind the case would take it for the method that it is not for us.
fn is_misspelt(method: &Method) -> bool {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
    let text = method.as_str();
    KNOWN.iter().any(|known| text != *known && text.eq_ignore_ascii_case(known))
}

/// The one `Host`. HTTP/1.0 may go without.
fn host(parts: &Parts) -> Result<Option<HeaderValue>, Problem> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) if parts.version < Version::HTTP_11 => return Ok(None),
        (Some(host), None) => host,
        _ => return Err(Problem::target_invalid().detail("nothing ran; send one Host header")),
    };
    match Authority::try_from(host.as_bytes()) {
        Ok(authority) if is_plain(&authority) => Ok(Some(host.clone())),
        _ => Err(Problem::target_invalid().detail("nothing ran; the Host header names no host")),
    }
}

/// `None`: it is already.
fn in_small_letters(host: &HeaderValue) -> Option<HeaderValue> {
    let bytes = host.as_bytes();
    let plain = || HeaderValue::from_bytes(&bytes.to_ascii_lowercase()).ok();
    bytes.iter().any(u8::is_ascii_uppercase).then(plain).flatten()
}

/// A host, and a port if there is more.
fn is_plain(authority: &Authority) -> bool {
    let (whole, host) = (authority.as_str(), authority.host());
    !host.is_empty() && (whole == host || (authority.port_u16().is_some() && !whole.contains('@')))
}

/// From absolute form to origin form; and nothing that a reader further on might take for another path.
fn make_plain(parts: &mut Parts, host: Option<&HeaderValue>) -> Result<(), Problem> {
    if let Some(authority) = parts.uri.authority() {
        // The upstream comes from the configuration alone; a target elsewhere is a mistake or worse.
        let same = host.is_some_and(|host| {
            host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
        });
        let is_http = matches!(parts.uri.scheme_str(), Some("http" | "https"));
        if !same || !is_http {
            let detail = "nothing ran; the target names another host than the Host header";
            return Err(Problem::target_invalid().detail(detail));
        }
        let plain = parts.uri.path_and_query().cloned().map(Uri::from);
        parts.uri = plain.unwrap_or_else(|| Uri::from_static("/"));
    }
    let path = parts.uri.path();
    let is_asterisk = path == "*" && parts.method == Method::OPTIONS;
    if is_asterisk || (path.starts_with('/') && !has_dot_segments(path)) {
        return Ok(());
    }
    Err(Problem::target_invalid())
}

/// Clients resolve these before they send. An upstream that does it after us would serve another path
/// than the one whose route we looked up.
fn has_dot_segments(path: &str) -> bool {
    if !path.contains("/.") && !path.contains('%') && !path.contains('\\') {
        return false;
    }
    let is_dots = |segment: &str| {
        let plain = segment.replace("%2e", ".").replace("%2E", ".");
        plain == "." || plain == ".."
    };
    let separators = path.replace("%2f", "/").replace("%2F", "/").replace("%5c", "/");
    separators.replace("%5C", "/").split(['/', '\\']).any(is_dots)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use semel_service::settings::RouteConfig;

    fn arrive(request: http::request::Builder) -> Result<(Parts, CheckedRequest), &'static str> {
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let routes = Routes::new(&[] as &[RouteConfig], Some(0)).unwrap();
        let arrival = CheckedRequest::of(
            &mut parts,
            &ClientAddress::new([127, 0, 0, 1].into()),
            &routes,
            None,
        );
        arrival.map(|arrival| (parts, arrival)).map_err(|problem| problem.name())
    }

    fn get(target: &str) -> http::request::Builder {
        Request::get(target).header("host", "shop.example")
    }

    #[test]
    fn an_absolute_target_is_served_for_its_own_host_alone() {
        let (parts, _) = arrive(get("http://Shop.Example/a?b")).unwrap();
        assert_eq!(parts.uri, "/a?b");
        for other in ["http://evil.example/a", "http://shop.example:81/", "ftp://shop.example/"] {
            assert_eq!(arrive(get(other)).unwrap_err(), "target-invalid", "{other}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        assert_eq!(arrive(Request::get("/")).unwrap_err(), "target-invalid");
        assert_eq!(arrive(get("/").header("host", "b")).unwrap_err(), "target-invalid");
        for bad in ["", "a b", "user@shop", "u@shop:80", "a/b", "a:", "a:b", "a:99999", ":80"] {
            let request = Request::get("/").header("host", bad);
            assert_eq!(arrive(request).unwrap_err(), "target-invalid", "{bad}");
        }
        for good in ["a", "a:80", "[::1]", "[::1]:80"] {
            assert!(arrive(Request::get("/").header("host", good)).is_ok(), "{good}");
        }
        let old = Request::get("/").version(Version::HTTP_10);
        assert_eq!(arrive(old).unwrap().1.host, None);
    }

    #[test]
    fn dots_are_no_way_around_a_route() {
        for bad in ["/a/../b", "/..", "/./a", "/a/%2e%2E/b", "/a/.%2e", "/a%2f..%2Fb", "/a/..%5cb"]
        {
            assert_eq!(arrive(get(bad)).unwrap_err(), "target-invalid", "{bad}");
        }
        for good in ["/a.b", "/.well-known/x", "/...", "/a%20b", "/", "/a?x=/../"] {
            assert!(arrive(get(good)).is_ok(), "{good}");
        }
    }

    #[test]
    fn connect_and_trace_are_refused() {
        for method in [Method::CONNECT, Method::TRACE] {
            assert_eq!(arrive(get("/").method(method)).unwrap_err(), "method-not-allowed");
        }
    }

    #[test]
    fn an_http_1_0_request_needs_a_content_length() {
        let old = || get("/").version(Version::HTTP_10);
        assert_eq!(arrive(old().method("POST")).unwrap_err(), "length-required");
        assert!(arrive(old().method("POST").header("content-length", "0")).is_ok());
        assert!(arrive(old()).is_ok());
    }
}
