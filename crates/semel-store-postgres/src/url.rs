//! The URL: what the driver does not know is taken out before it sees the rest.

use std::path::PathBuf;

use semel_core::{Error, Result};
use semel_remote::decoded;
use tokio_postgres::{Config, config::SslMode};

/// Where the server is, and how far it is trusted.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) server: Config,
    pub(crate) trust: Trust,
}

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// There is no TLS, or it is only preferred: as with libpq, nobody is checked.
    Nobody,
    /// `require` and up: a certificate of the system's authorities, for the host of the URL.
    System,
    /// The same with the authorities of a file.
    File(PathBuf),
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let scheme = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
        if !scheme {
            return Err(Error::invalid(
                "postgres: the URL must begin with postgres:// or postgresql://",
            ));
        }
        let (base, query) = split(url);
        let (tls, rest) = Tls::take(query)?;
        let url =
            if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut server: Config = url.parse().map_err(|error| unreadable(&error))?;
        if server.get_hosts().is_empty() {
            return Err(Error::invalid(
                "postgres: the URL names no host; write postgres://USER@HOST/DATABASE",
            ));
        }
        server.ssl_mode(tls.mode());
        Ok(Self { server, trust: tls.trust()? })
    }
}

/// What the URL says about TLS.
#[derive(Default)]
struct Tls {
    mode: Option<SslMode>,
    roots: Option<String>,
}

impl Tls {
    /// Takes it out of a query; the rest is the driver's.
    fn take(query: &str) -> Result<(Self, Vec<&str>)> {
        let (mut tls, mut rest) = (Self::default(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let is_second = match decode(name)?.as_str() {
                "sslmode" => tls.mode.replace(ssl_mode(value)?).is_some(),
                "sslrootcert" => tls.roots.replace(decode(value)?).is_some(),
                _ => {
                    rest.push(pair);
                    false
                }
            };
            if is_second {
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

    fn trust(self) -> Result<Trust> {
        match (self.mode(), self.roots) {
            (SslMode::Require, Some(file)) if file != "system" => Ok(Trust::File(file.into())),
            (SslMode::Require, _) => Ok(Trust::System),
            (_, None) => Ok(Trust::Nobody),
            (_, Some(_)) => Err(Error::invalid(
                "postgres: sslrootcert is of use with sslmode require, verify-ca or verify-full only",
            )),
        }
    }
}

/// The query begins where the driver has it begin: what stands before the first `@` is the login.
fn split(url: &str) -> (&str, &str) {
    let login = url.find('@').unwrap_or(0);
    match url[login..].find('?') {
        Some(at) => (&url[..login + at], &url[login + at + 1..]),
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

/// The driver names the option that it does not understand, and nothing else of the URL.
fn unreadable(error: &tokio_postgres::Error) -> Error {
    let why =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Error::invalid(format!("postgres: the URL cannot be read: {why}"))
}

fn decode(value: &str) -> Result<String> {
    decoded(value).map_err(|_| {
        Error::invalid("postgres: a parameter of the URL has a % that stands for nothing")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        Address::parse(url).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn certificates_are_checked_under_require_and_up() {
        let trust =
            |query: &str| Address::parse(&format!("postgres://u@h/d{query}")).unwrap().trust;
        assert_eq!(trust(""), Trust::Nobody);
        assert_eq!(trust("?sslmode=prefer"), Trust::Nobody);
        for mode in ["require", "verify-ca", "verify-full"] {
            assert_eq!(trust(&format!("?sslmode={mode}")), Trust::System);
        }
        let file = Trust::File("/etc/my roots.pem".into());
        assert_eq!(trust("?sslmode=verify-full&sslrootcert=/etc/my%20roots.pem"), file);
        assert_eq!(trust("?sslrootcert=%2Fetc%2Fmy roots.pem"), file);
    }

    #[test]
    fn a_mode_is_found_behind_any_password_and_however_it_is_written() {
        for url in
            ["postgres://u:se?cret@h/d?sslmode=require", "postgres://u@h/d?ssl%6dode=require"]
        {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.trust, Trust::System, "{url}");
            assert_eq!(address.server.get_ssl_mode(), SslMode::Require, "{url}");
        }
    }

    #[test]
    fn what_is_said_about_certificates_is_not_passed_over() {
        for mode in ["disable", "allow", "prefer"] {
            let said = error(&format!("postgres://u@h/d?sslmode={mode}&sslrootcert=ca.pem"));
            assert!(said.contains("verify-full only"), "{said}");
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
