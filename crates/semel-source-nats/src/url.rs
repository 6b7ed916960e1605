//! Parses URLs: hosts, login, TLS, path and options. The password is never printed.

use std::{fmt, path::PathBuf, time::Duration};

use async_nats::{ConnectOptions, ServerAddr};
use semel_core::{Error, Result};

/// How to reach and to enter the servers.
#[derive(Clone)]
pub(crate) struct NatsAddress {
    hosts: Vec<(String, u16)>,
    tls: bool,
    ca_file: Option<PathBuf>,
    login: Option<NatsLogin>,
}

#[derive(Clone)]
enum NatsLogin {
    User(String, String),
    Token(String),
}

/// A parsed URL.
#[derive(Clone, Debug)]
pub(crate) struct NatsUrl {
    pub(crate) address: NatsAddress,
    /// The decoded parts of the path.
    pub(crate) path: Vec<String>,
    /// The JetStream domain, if the URL names one.
    pub(crate) domain: Option<String>,
    /// The options that are left for the caller, decoded.
    pub(crate) options: Vec<(String, String)>,
}

const PORT: u16 = 4222;

impl NatsUrl {
    /// Parses `nats://` or `nats+tls://`. An error shows `example`, and never the URL, which may contain a password.
    pub(crate) fn parse(url: &str, example: &str) -> Result<Self> {
        Self::read(url).map_err(|why| not_understood(why, example))
    }

    fn read(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
        let tls = match scheme {
            "nats" => false,
            "nats+tls" => true,
            _ => return Err("its scheme is unknown"),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(l, p)| (Some(l), p));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = hosts.split(',').map(|host| semel_remote::host_and_port(host, PORT));
        let path = path.split('/').filter(|part| !part.is_empty()).map(semel_remote::decoded);
        let login = login.map(login_of).transpose()?;
        let address =
            NatsAddress { hosts: hosts.collect::<Result<_, _>>()?, tls, ca_file: None, login };
        let path = path.collect::<Result<_, _>>()?;
        let mut parsed = Self { address, path, domain: None, options: Vec::new() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = semel_remote::decoded(value)?;
            match name {
                "ca" if !value.is_empty() => parsed.address.ca_file = Some(value.into()),
                "domain" if !value.is_empty() => parsed.domain = Some(value),
                _ => parsed.options.push((name.to_owned(), value)),
            }
        }
        if parsed.address.ca_file.is_some() && !tls {
            return Err("?ca= is of use with nats+tls:// only");
        }
        Ok(parsed)
    }
}

/// The error for a URL that is wrong in this way.
pub(crate) fn not_understood(why: &str, example: &str) -> Error {
    Error::invalid(format!("nats: the URL is not understood: {why}; it is like {example}"))
}

impl NatsAddress {
    pub(crate) fn servers(&self) -> Result<Vec<ServerAddr>> {
        let scheme = if self.tls { "tls" } else { "nats" };
        let server = |(host, port): &(String, u16)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let server = format!("{scheme}://{host}:{port}").parse();
            server.map_err(|_| Error::invalid("nats: a host of the URL is not one"))
        };
        self.hosts.iter().map(server).collect()
    }

    /// Login and TLS.
    pub(crate) fn options(&self) -> Result<ConnectOptions> {
        let mut options = ConnectOptions::new();
        match &self.login {
            Some(NatsLogin::User(user, password)) => {
                options = options.user_and_password(user.clone(), password.clone());
            }
            Some(NatsLogin::Token(token)) => options = options.token(token.clone()),
            None => {}
        }
        if self.tls {
            // Another part of the process may have chosen a TLS provider already; that one works too.
            let _ = rustls::crypto::ring::default_provider().install_default();
            options = options.require_tls(true);
        }
        if let Some(file) = &self.ca_file {
            std::fs::File::open(file).map_err(|error| {
                Error::invalid(format!("nats: cannot read the certificates in {}", file.display()))
                    .with_source(error)
            })?;
            options = options.add_root_certificates(file.clone());
        }
        Ok(options)
    }
}

/// Prints no login.
impl fmt::Debug for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, tls, .. } = self;
        f.debug_struct("NatsAddress")
            .field("hosts", hosts)
            .field("tls", tls)
            .finish_non_exhaustive()
    }
}

fn login_of(login: &str) -> Result<NatsLogin, &'static str> {
    let decoded = semel_remote::decoded;
    match login.split_once(':') {
        Some(("", token)) => Ok(NatsLogin::Token(decoded(token)?)),
        Some((user, password)) => Ok(NatsLogin::User(decoded(user)?, decoded(password)?)),
        // Not accepted as a user name: it may be a token, and user names may be printed.
        None => Err("a login is USER:PASSWORD@ or :TOKEN@"),
    }
}

/// Parses `true` or `false`; an option without a value is set.
pub(crate) fn flag(value: &str) -> Option<bool> {
    match value {
        "" | "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Parses `500ms`, `30s`, `5m` or `1h`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(millis).map(Duration::from_millis)
}

/// True for the name of a stream or a consumer: it becomes a part of subjects.
pub(crate) fn is_name(name: &str) -> bool {
    let is_wrong = |c: char| ".*>/\\".contains(c) || c.is_whitespace() || c.is_control();
    !name.is_empty() && name.len() <= 255 && !name.contains(is_wrong)
}

/// True for a subject that can be published to: parts between dots, without wildcards.
pub(crate) fn is_subject(subject: &str) -> bool {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control();
    let is_part = |part: &str| !part.is_empty() && part != "*" && part != ">";
    !subject.contains(is_wrong) && subject.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "nats://HOST/STREAM/CONSUMER";

    #[test]
    fn every_kind_of_url_is_understood() {
        let parse = |url| NatsUrl::parse(url, EXAMPLE).unwrap();
        let plain = parse("nats://localhost/ORDERS/billing");
        assert_eq!(plain.address.hosts, [("localhost".to_owned(), 4222)]);
        assert_eq!(plain.path, ["ORDERS", "billing"]);
        assert_eq!(parse("nats://a:1,[::1]:2,c/S").address.hosts[1], ("::1".into(), 2));
        let tls = parse("nats+tls://u:p%40ss@h/S?ca=/x/ca.pem&domain=hub&filter=a.%3E&create");
        assert!(
            matches!(tls.address.login, Some(NatsLogin::User(user, pass)) if (user.as_str(), pass.as_str()) == ("u", "p@ss"))
        );
        assert_eq!(tls.domain.as_deref(), Some("hub"));
        let options =
            [("filter".to_owned(), "a.>".to_owned()), ("create".to_owned(), String::new())];
        assert_eq!(tls.options, options);
        let token = parse("nats://:token@h").address.login;
        assert!(matches!(token, Some(NatsLogin::Token(token)) if token == "token"));
        assert_eq!(parse("nats://a,[::1]/ids").address.servers().unwrap().len(), 2);
    }

    #[test]
    fn a_bad_url_is_refused_and_not_shown() {
        for url in [
            "localhost",
            "http://:canary@a/S",
            "nats://canary@a/S",
            "nats://:canary@/S",
            "nats://:canary@a:x/S",
            "nats://:canary@a/S?ca=x",
            "nats://:canary%@a/S",
            "nats://:canary@a/S?filter=%",
        ] {
            let error = NatsUrl::parse(url, EXAMPLE).unwrap_err();
            assert!(error.to_string().contains(EXAMPLE), "{url}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error}");
        }
        let url = NatsUrl::parse("nats://u:canary@a/S", EXAMPLE).unwrap();
        assert!(!format!("{url:?}").contains("canary"));
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Some(Duration::from_secs(120)));
        for wrong in ["", "5", "s", "-5s", "5 s", "99999999999999999999s"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_and_subjects_are_parts_of_a_protocol_line() {
        assert!(is_name("ORDERS_2") && is_subject("orders.new") && is_subject("a.b*c"));
        for wrong in ["", "a.b", "a b", "*", "a>", "a\r\nb"] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
        for wrong in ["", "a..b", ".a", "a.*", ">", "a b", "a\r\nPUB"] {
            assert!(!is_subject(wrong), "{wrong:?}");
        }
    }
}
