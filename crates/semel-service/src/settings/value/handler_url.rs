//! The URL of the handler of a worker.

use std::{fmt, str::FromStr};

use http::Uri;

use super::upstream_url::check_host;

/// `http://HOST:PORT[/PATH][?QUERY]`: events are posted there.
#[derive(Clone, PartialEq, Eq)]
pub struct HandlerUrl {
    uri: Uri,
}

const FORM: &str = "write http://HOST:PORT/PATH";

impl HandlerUrl {
    /// The URL, with a host and a path.
    pub const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Host and port to connect to.
    pub fn address(&self) -> (&str, u16) {
        let host = self.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host, self.uri.port_u16().unwrap_or(80))
    }
}

/// Errors never repeat the URL: it may hold a password.
impl FromStr for HandlerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err("TLS to the handler is not in this release; put the handler on http".into());
        }
        if !text.starts_with("http://") {
            return Err(format!("does not start with http:// ; {FORM}"));
        }
        if text.contains('#') {
            return Err(format!("has a fragment; {FORM}"));
        }
        let uri: Uri = text.parse().map_err(|_| format!("not a URL; {FORM}"))?;
        let authority = uri.authority().ok_or_else(|| format!("names no host; {FORM}"))?;
        if authority.as_str().contains('@') {
            return Err(format!(
                "has a user or a password, which the worker does not send; {FORM}"
            ));
        }
        check_host(authority)?;
        Ok(Self { uri })
    }
}

/// Without the query, which may hold a token.
impl fmt::Display for HandlerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        write!(f, "http://{host}{}", self.uri.path())
    }
}

impl fmt::Debug for HandlerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandlerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_has_a_host_and_maybe_a_path_and_a_query() {
        for (url, host, port, shown) in [
            ("http://127.0.0.1:3000", "127.0.0.1", 3000, "http://127.0.0.1:3000/"),
            ("http://mail/events?key=canary", "mail", 80, "http://mail/events"),
            ("http://[::1]:3000/a/b", "::1", 3000, "http://[::1]:3000/a/b"),
        ] {
            let parsed: HandlerUrl = url.parse().unwrap();
            assert_eq!((parsed.address(), parsed.to_string()), ((host, port), shown.to_owned()));
            assert!(!format!("{parsed:?}").contains("canary"));
        }
    }

    #[test]
    fn every_other_url_is_refused_with_the_fix() {
        for (bad, word) in [
            ("", "http://HOST:PORT/PATH"),
            ("127.0.0.1:3000", "http://HOST:PORT/PATH"),
            ("http://", "http://HOST:PORT"),
            ("http:///a", "http://HOST:PORT"),
            ("http://a b", "http://HOST:PORT"),
            ("http://a:0", "port"),
            ("http://a/#b", "fragment"),
            ("https://a", "TLS"),
            ("http://u:canary@a", "password"),
        ] {
            let error = bad.parse::<HandlerUrl>().unwrap_err();
            assert!(error.contains(word) && !error.contains("canary"), "{bad}: {error}");
        }
    }
}
