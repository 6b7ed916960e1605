//! The URL of an upstream.

use std::str::FromStr;

use http::{Uri, uri::Authority};

/// `http://HOST:PORT[/base]` in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamUrl {
    pub(crate) authority: Authority,
    /// Empty, or starts with a slash and ends without one.
    pub(crate) base: String,
}

/// Errors never repeat the URL: it may hold a password.
impl FromStr for UpstreamUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write http://HOST:PORT or http://HOST:PORT/BASE";
        if text.starts_with("https://") {
            return Err(
                "TLS to the upstream is not in this release; put the upstream on http".into()
            );
        }
        let rest = text.strip_prefix("http://");
        let rest = rest.ok_or_else(|| format!("does not start with http:// ; {FORM}"))?;
        if rest.contains(['?', '#']) {
            return Err(format!("has a query or a fragment; {FORM}"));
        }
        let uri: Uri = text.parse().map_err(|_| format!("not a URL; {FORM}"))?;
        let authority = uri.authority().ok_or_else(|| format!("names no host; {FORM}"))?;
        check(authority)?;
        let base = uri.path().trim_end_matches('/');
        if base.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err("has dots as a segment of its path; write the path without them".into());
        }
        Ok(Self { authority: authority.clone(), base: base.to_owned() })
    }
}

const PORT: &str = "has no port from 1 to 65535 after the colon; write http://HOST:PORT";

fn check(authority: &Authority) -> Result<(), String> {
    if authority.as_str().contains('@') {
        return Err("has a user or a password; the gateway passes on the client's own \
                    Authorization, write http://HOST:PORT"
            .into());
    }
    check_host(authority)
}

/// Checks that there is a host, and that the port can be connected to, if there is one.
pub(super) fn check_host(authority: &Authority) -> Result<(), String> {
    if authority.host().is_empty() || authority.host() == "[]" {
        return Err("names no host; write http://HOST:PORT".into());
    }
    // `Authority` takes any text after the colon, and a port that is too large.
    let port = &authority.as_str()[authority.host().len()..];
    let is_valid = port.is_empty() || port[1..].parse::<u16>().is_ok_and(|port| port > 0);
    if is_valid { Ok(()) } else { Err(PORT.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_host_and_a_base() {
        for (url, authority, base) in [
            ("http://127.0.0.1:3000", "127.0.0.1:3000", ""),
            ("http://payments", "payments", ""),
            ("http://[::1]:3000/", "[::1]:3000", ""),
            ("http://api:80/v1/", "api:80", "/v1"),
        ] {
            let upstream: UpstreamUrl = url.parse().unwrap();
            assert_eq!((upstream.authority.as_str(), upstream.base.as_str()), (authority, base));
        }
    }

    #[test]
    fn every_other_url_is_refused_with_the_fix() {
        for (bad, word) in [
            ("", "http://HOST:PORT"),
            ("127.0.0.1:3000", "http://HOST:PORT"),
            ("localhost", "http://HOST:PORT"),
            ("ftp://a", "http://HOST:PORT"),
            ("http://", "http://HOST:PORT"),
            ("http:///a", "http://HOST:PORT"),
            ("http://:3000", "http://HOST:PORT"),
            ("http://a b", "http://HOST:PORT"),
            ("http://a/?b", "query"),
            ("http://a/#b", "fragment"),
            ("http://a:0", "port"),
            ("http://a:70000", "port"),
            ("http://a:", "port"),
            ("http://a/../b", "dots"),
            ("https://a:443", "put the upstream on http"),
        ] {
            let error = bad.parse::<UpstreamUrl>().unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }

    #[test]
    fn passwords_are_refused_and_not_repeated() {
        let error = "http://u:hunter2@a:80".parse::<UpstreamUrl>().unwrap_err();
        assert!(error.contains("password") && !error.contains("hunter2"), "{error}");
    }
}
