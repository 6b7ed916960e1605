//! Parses the store's URL: hosts, bucket, TLS, login and options. The password is never printed.

use std::{fmt, path::PathBuf, time::Duration};

use async_nats::{ConnectOptions, ServerAddr};
use semel_core::{Error, ErrorKind, Result};

/// A parsed URL.
#[derive(Clone)]
pub(crate) struct NatsUrl {
    hosts: Vec<(String, u16)>,
    pub(crate) bucket: String,
    tls: bool,
    ca_file: Option<PathBuf>,
    login: Option<NatsLogin>,
    pub(crate) replicas: Option<u8>,
    pub(crate) old_server: Option<Duration>,
}

#[derive(Clone)]
enum NatsLogin {
    User(String, String),
    Token(String),
}

const PORT: u16 = 4222;

impl NatsUrl {
    /// Reads `nats://` or `nats+tls://`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        let tls = match scheme {
            "nats" => false,
            "nats+tls" => true,
            _ => return Err(invalid("its scheme is unknown")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, hosts_and_path) =
            rest.rsplit_once('@').map_or((None, rest), |(l, p)| (Some(l), p));
        let (hosts, bucket) = hosts_and_path.split_once('/').unwrap_or((hosts_and_path, ""));
        if bucket.is_empty() {
            return Err(invalid("it does not end in /BUCKET"));
        }
        let mut parsed = Self {
            hosts: hosts.split(',').map(host_of).collect::<Result<_>>()?,
            bucket: decoded(bucket)?,
            tls,
            ca_file: None,
            login: login.map(login_of).transpose()?,
            replicas: None,
            old_server: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            parsed.set(pair)?;
        }
        if parsed.ca_file.is_some() && !tls {
            return Err(invalid("?ca= is of use with nats+tls:// only"));
        }
        Ok(parsed)
    }

    fn set(&mut self, pair: &str) -> Result<()> {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("ca", file) if !file.is_empty() => self.ca_file = Some(decoded(file)?.into()),
            ("replicas", count) => {
                self.replicas =
                    Some(count.parse().map_err(|_| invalid("?replicas= is 1, 3 or 5"))?);
            }
            ("old-server-max-age", age) => self.old_server = Some(age_of(age)?),
            _ => return Err(invalid("its parameters are ca, replicas and old-server-max-age")),
        }
        Ok(())
    }

    pub(crate) fn servers(&self) -> Result<Vec<ServerAddr>> {
        let scheme = if self.tls { "tls" } else { "nats" };
        let server = |(host, port): &(String, u16)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            format!("{scheme}://{host}:{port}").parse().map_err(|_| invalid("a host is not one"))
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
impl fmt::Debug for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, bucket, tls, .. } = self;
        f.debug_struct("NatsUrl")
            .field("hosts", hosts)
            .field("bucket", bucket)
            .field("tls", tls)
            .finish_non_exhaustive()
    }
}

fn host_of(host: &str) -> Result<(String, u16)> {
    semel_remote::host_and_port(host, PORT).map_err(invalid)
}

fn login_of(login: &str) -> Result<NatsLogin> {
    match login.split_once(':') {
        Some(("", token)) => Ok(NatsLogin::Token(decoded(token)?)),
        Some((user, password)) => Ok(NatsLogin::User(decoded(user)?, decoded(password)?)),
        // Not accepted as a user name: it may be a token, and user names may be printed.
        None => Err(invalid("a login is USER:PASSWORD@ or :TOKEN@")),
    }
}

/// Reads `90s`, `30m`, `36h` or `7d`.
fn age_of(text: &str) -> Result<Duration> {
    let wrong = || invalid("?old-server-max-age= is like 36h or 7d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let age = count.checked_mul(seconds).filter(|age| *age > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(age))
}

fn decoded(text: &str) -> Result<String> {
    semel_remote::decoded(text).map_err(invalid)
}

/// An error that does not print the URL, which may contain a password.
fn invalid(why: &str) -> Error {
    let subject = format!(
        "nats: the store's URL is not understood: {why}; it is like nats://USER:PASSWORD@HOST:4222/BUCKET, \
         nats://HOST,HOST,HOST/BUCKET?replicas=3 or nats+tls://HOST/BUCKET?ca=FILE"
    );
    Error::new(ErrorKind::Invalid, subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_url_is_understood() {
        let parse = |url| NatsUrl::parse(url).unwrap();
        let plain = parse("nats://localhost/ids");
        assert_eq!((plain.hosts, plain.bucket.as_str()), (vec![("localhost".into(), 4222)], "ids"));
        assert_eq!(parse("nats://a:1,[::1]:2,c/ids").hosts[1], ("::1".into(), 2));
        let tls = parse("nats+tls://u:p%40ss@h/ids?ca=/x/ca.pem&replicas=3");
        assert!(
            matches!(tls.login, Some(NatsLogin::User(user, pass)) if (user.as_str(), pass.as_str()) == ("u", "p@ss"))
        );
        assert_eq!((tls.tls, tls.replicas), (true, Some(3)));
        let old = parse("nats://:token@h/ids?old-server-max-age=36h");
        assert!(matches!(old.login, Some(NatsLogin::Token(token)) if token == "token"));
        assert_eq!(old.old_server, Some(Duration::from_secs(36 * 3600)));
        assert_eq!(parse("nats://a,[::1]/ids").servers().unwrap().len(), 2);
    }

    #[test]
    fn a_bad_url_is_refused_and_not_shown() {
        for url in [
            "localhost",
            "http://:canary@a/ids",
            "nats://canary@a/ids",
            "nats://:canary@a",
            "nats://:canary@/ids",
            "nats://:canary@a:x/ids",
            "nats://:canary@a/ids?insecure",
            "nats://:canary@a/ids?ca=x",
            "nats://:canary@a/ids?replicas=x",
            "nats://:canary@a/ids?old-server-max-age=5",
            "nats://:canary%@a/ids",
        ] {
            let error = NatsUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error}");
        }
        let url = NatsUrl::parse("nats://u:canary@a/ids").unwrap();
        assert!(!format!("{url:?}").contains("canary"));
    }
}
