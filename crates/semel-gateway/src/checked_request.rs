//! Checks the head of a request before anything acts on it: method, host and target must have one meaning only.

use std::net::IpAddr;

use http::{
    HeaderName, HeaderValue, Method, Uri, Version,
    header::{CONTENT_LENGTH, HOST},
    request::Parts,
    uri::Authority,
};
use semel::http::Problem;

use super::{
    proxy::connection_names_end_to_end,
    routes::{MatchedRoute, Routes},
};

/// A request whose head was checked: what the proxy has to know beside the request. It is in the request's extensions.
#[derive(Clone, Debug)]
pub(super) struct CheckedRequest {
    pub(super) client: ClientAddress,
    pub(super) host: Option<HeaderValue>,
    pub(super) route: MatchedRoute,
}

/// The address of a client, also as the value of a header.
#[derive(Clone, Debug)]
pub(super) struct ClientAddress {
    pub(super) ip: IpAddr,
    pub(super) header_value: HeaderValue,
}

impl ClientAddress {
    pub(super) fn new(ip: IpAddr) -> Self {
        let header_value = HeaderValue::try_from(ip.to_string()).expect("an address is ASCII");
        Self { ip, header_value }
    }
}

impl CheckedRequest {
    /// Checks the head, puts the target into origin form and finds its route.
    pub(super) fn check(
        parts: &mut Parts,
        client: &ClientAddress,
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
        // The body would end with the connection, and a part of it would look like the whole.
        if parts.version < Version::HTTP_11
            && !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS)
            && !parts.headers.contains_key(CONTENT_LENGTH)
        {
            return Err(Problem::length_required());
        }
        if connection_names_end_to_end(&parts.headers, principal) {
            return Err(Problem::connection_invalid());
        }
        let host = host(parts)?;
        if let Some(plain) = host.as_ref().and_then(in_small_letters) {
            // Host names have no case, and they are compared.
            parts.headers.insert(HOST, plain);
        }
        make_plain(parts, host.as_ref())?;
        let route = routes.find(&parts.method, parts.uri.path()).ok_or_else(Problem::no_route)?;
        Ok(Self { client: client.clone(), host, route })
    }
}

/// True for a known method in another case: an upstream that ignores case would take it for that method, and the
/// gateway would not protect it.
fn is_misspelt(method: &Method) -> bool {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
    let text = method.as_str();
    KNOWN.iter().any(|known| text != *known && text.eq_ignore_ascii_case(known))
}

/// The only `Host` header. HTTP/1.0 needs none.
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

/// `None` if it has no capitals.
fn in_small_letters(host: &HeaderValue) -> Option<HeaderValue> {
    let bytes = host.as_bytes();
    let plain = || HeaderValue::from_bytes(&bytes.to_ascii_lowercase()).ok();
    bytes.iter().any(u8::is_ascii_uppercase).then(plain).flatten()
}

/// True for a host, or a host and a port.
fn is_plain(authority: &Authority) -> bool {
    let (whole, host) = (authority.as_str(), authority.host());
    !host.is_empty() && (whole == host || (authority.port_u16().is_some() && !whole.contains('@')))
}

/// Puts an absolute target into origin form, and refuses a path that an upstream could read as another one.
fn make_plain(parts: &mut Parts, host: Option<&HeaderValue>) -> Result<(), Problem> {
    if let Some(authority) = parts.uri.authority() {
        // Only the configuration names upstreams; a target on another host is a mistake or an attack.
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

/// True for segments of dots. Clients resolve them before they send. If the upstream resolved them, it would serve
/// another path than the one whose route was found here.
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

    fn check(request: http::request::Builder) -> Result<(Parts, CheckedRequest), &'static str> {
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let routes = Routes::new(&[] as &[RouteConfig], Some(0)).unwrap();
        let checked = CheckedRequest::check(
            &mut parts,
            &ClientAddress::new([127, 0, 0, 1].into()),
            &routes,
            None,
        );
        checked.map(|checked| (parts, checked)).map_err(|problem| problem.name())
    }

    fn get(target: &str) -> http::request::Builder {
        Request::get(target).header("host", "shop.example")
    }

    #[test]
    fn an_absolute_target_is_served_for_its_own_host_alone() {
        let (parts, _) = check(get("http://Shop.Example/a?b")).unwrap();
        assert_eq!(parts.uri, "/a?b");
        for other in ["http://evil.example/a", "http://shop.example:81/", "ftp://shop.example/"] {
            assert_eq!(check(get(other)).unwrap_err(), "target-invalid", "{other}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        assert_eq!(check(Request::get("/")).unwrap_err(), "target-invalid");
        assert_eq!(check(get("/").header("host", "b")).unwrap_err(), "target-invalid");
        for bad in ["", "a b", "user@shop", "u@shop:80", "a/b", "a:", "a:b", "a:99999", ":80"] {
            let request = Request::get("/").header("host", bad);
            assert_eq!(check(request).unwrap_err(), "target-invalid", "{bad}");
        }
        for good in ["a", "a:80", "[::1]", "[::1]:80"] {
            assert!(check(Request::get("/").header("host", good)).is_ok(), "{good}");
        }
        let old = Request::get("/").version(Version::HTTP_10);
        assert_eq!(check(old).unwrap().1.host, None);
    }

    #[test]
    fn dots_do_not_bypass_a_route() {
        for bad in ["/a/../b", "/..", "/./a", "/a/%2e%2E/b", "/a/.%2e", "/a%2f..%2Fb", "/a/..%5cb"]
        {
            assert_eq!(check(get(bad)).unwrap_err(), "target-invalid", "{bad}");
        }
        for good in ["/a.b", "/.well-known/x", "/...", "/a%20b", "/", "/a?x=/../"] {
            assert!(check(get(good)).is_ok(), "{good}");
        }
    }

    #[test]
    fn connect_and_trace_are_refused() {
        for method in [Method::CONNECT, Method::TRACE] {
            assert_eq!(check(get("/").method(method)).unwrap_err(), "method-not-allowed");
        }
    }

    #[test]
    fn an_http_1_0_request_needs_a_content_length() {
        let old = || get("/").version(Version::HTTP_10);
        assert_eq!(check(old().method("POST")).unwrap_err(), "length-required");
        assert!(check(old().method("POST").header("content-length", "0")).is_ok());
        assert!(check(old()).is_ok());
    }
}
