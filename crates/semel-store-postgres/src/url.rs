//! Parses `postgres://…`: `sslmode` and `sslrootcert` here, everything else by the driver.

use std::path::PathBuf;

use semel_core::{Error, Result};
use semel_remote::decoded;
use tokio_postgres::{Config, config::SslMode};

/// The address of the server, and which certificates are accepted.
#[derive(Clone)]
pub(crate) struct PgAddress {
    pub(crate) server: Config,
    pub(crate) trust: TlsTrust,
}

/// Which certificates of the server are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsTrust {
    /// TLS is off or only preferred: no certificate is checked, as in libpq.
    Unchecked,
    /// `require` and stricter modes: a certificate authority of the operating system has signed the certificate, for the
    /// host of the URL. This is stricter than libpq, which checks both only with `verify-full`.
    System,
    /// The same, with the certificate authorities of a file.
    File(PathBuf),
}

impl PgAddress {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let has_scheme = ["postgres://", "postgresql://"].iter().any(|it| url.starts_with(it));
        if !has_scheme {
            return Err(Error::invalid(
                "postgres: the URL must begin with postgres:// or postgresql://",
            ));
        }
        let (base, query) = split_query(url);
        let (tls, rest) = TlsParameters::take(query)?;
        let url =
            if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut server: Config = url.parse().map_err(|error| invalid_url(&error))?;
        if server.get_hosts().is_empty() {
            return Err(Error::invalid(
                "postgres: the URL names no host; write postgres://USER@HOST/DATABASE",
            ));
        }
        server.ssl_mode(tls.mode());
        Ok(Self { server, trust: tls.trust()? })
    }
}

/// The TLS parameters of a URL.
#[derive(Default)]
struct TlsParameters {
    mode: Option<SslMode>,
    roots: Option<String>,
}

impl TlsParameters {
    /// Takes the TLS parameters out of a query, and returns the other parameters for the driver.
    fn take(query: &str) -> Result<(Self, Vec<&str>)> {
        let (mut tls, mut rest) = (Self::default(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let is_duplicate = match decode(name)?.as_str() {
                "sslmode" => tls.mode.replace(ssl_mode(value)?).is_some(),
                "sslrootcert" => tls.roots.replace(decode(value)?).is_some(),
                _ => {
                    rest.push(pair);
                    false
                }
            };
            if is_duplicate {
                return Err(Error::invalid(
                    "postgres: the URL has sslmode or sslrootcert twice; write each once",
                ));
            }
        }
        Ok((tls, rest))
    }

    fn mode(&self) -> SslMode {
        let default = if self.roots.is_some() { SslMode::Require } else { SslMode::Prefer };
        self.mode.unwrap_or(default)
    }

    fn trust(self) -> Result<TlsTrust> {
        match (self.mode(), self.roots) {
            (SslMode::Require, Some(file)) if file != "system" => Ok(TlsTrust::File(file.into())),
            (SslMode::Require, _) => Ok(TlsTrust::System),
            (_, None) => Ok(TlsTrust::Unchecked),
            (_, Some(_)) => Err(Error::invalid(
                "postgres: sslrootcert needs sslmode require, verify-ca or verify-full",
            )),
        }
    }
}

/// Splits off the query, as the driver does: a `?` before the first `@` belongs to the password.
fn split_query(url: &str) -> (&str, &str) {
    let host = url.find('@').unwrap_or(0);
    match url[host..].find('?') {
        Some(at) => (&url[..host + at], &url[host + at + 1..]),
        None => (url, ""),
    }
}

fn ssl_mode(value: &str) -> Result<SslMode> {
    match value {
        "disable" => Ok(SslMode::Disable),
        "allow" | "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => Err(Error::invalid(
            "postgres: sslmode must be disable, allow, prefer, require, verify-ca or verify-full",
        )),
    }
}

/// The driver's error is safe to show: it names an option, and never quotes a password.
fn invalid_url(error: &tokio_postgres::Error) -> Error {
    let why =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Error::invalid(format!("postgres: the URL cannot be read: {why}"))
}

/// Decodes the `%` escapes of a parameter.
fn decode(value: &str) -> Result<String> {
    decoded(value).map_err(|_| {
        Error::invalid(
            "postgres: a parameter of the URL has a % that is not followed by two hex digits",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        PgAddress::parse(url).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn certificates_are_checked_under_require_and_stricter_modes() {
        let trust =
            |query: &str| PgAddress::parse(&format!("postgres://u@h/d{query}")).unwrap().trust;
        assert_eq!(trust(""), TlsTrust::Unchecked);
        assert_eq!(trust("?sslmode=prefer"), TlsTrust::Unchecked);
        for mode in ["require", "verify-ca", "verify-full"] {
            assert_eq!(trust(&format!("?sslmode={mode}")), TlsTrust::System);
        }
        let file = TlsTrust::File("/etc/my roots.pem".into());
        assert_eq!(trust("?sslmode=verify-full&sslrootcert=/etc/my%20roots.pem"), file);
        assert_eq!(trust("?sslrootcert=%2Fetc%2Fmy roots.pem"), file);
    }

    #[test]
    fn sslmode_is_found_after_any_password_and_with_any_escaping() {
        for url in
            ["postgres://u:se?cret@h/d?sslmode=require", "postgres://u@h/d?ssl%6dode=require"]
        {
            let address = PgAddress::parse(url).unwrap();
            assert_eq!(address.trust, TlsTrust::System, "{url}");
            assert_eq!(address.server.get_ssl_mode(), SslMode::Require, "{url}");
        }
    }

    #[test]
    fn tls_parameters_are_never_ignored() {
        for mode in ["disable", "allow", "prefer"] {
            let message = error(&format!("postgres://u@h/d?sslmode={mode}&sslrootcert=ca.pem"));
            assert!(message.contains("verify-full"), "{message}");
        }
        for twice in ["sslmode=verify-full&sslmode=disable", "sslrootcert=a&sslrootcert=b"] {
            assert!(error(&format!("postgres://u@h/d?{twice}")).contains("twice"));
        }
    }

    #[test]
    fn a_url_that_cannot_be_read_is_not_quoted() {
        for url in [
            "mysql://u:canary@h/d",
            "postgres://u:canary@h:port/d",
            "postgres://u:canary@h/d?nonsense=canary",
            "postgres://u:canary@h/d?sslmode=canary",
            "postgres://u:canary@h/d?sslrootcert=canary%zz",
            "postgres://u:canary@/d",
        ] {
            assert!(!error(url).contains("canary"), "{}", error(url));
        }
        assert!(error("postgres://u@h/d?nonsense=1").contains("nonsense"));
    }
}
