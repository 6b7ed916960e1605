//! Parses the store's URL: topology, hosts, TLS and login. The password is never printed.

use std::{fmt, path::PathBuf, time::Duration};

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
    io::tcp::{TcpSettings, socket2},
};
use semel_core::{Error, ErrorKind, Result};

/// TCP keepalive: how long a connection may be idle before the system probes it.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A parsed URL.
#[derive(Clone)]
pub(crate) struct RedisUrl {
    pub(crate) topology: RedisTopology,
    hosts: Vec<(String, u16)>,
    tls: Option<RedisTls>,
    db: i64,
    user: Option<String>,
    password: Option<String>,
}

/// How the servers are deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedisTopology {
    Standalone,
    Cluster,
    Sentinel { service: String },
}

#[derive(Clone, Debug)]
struct RedisTls {
    ca_file: Option<PathBuf>,
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

impl RedisUrl {
    /// Reads `redis://`, `rediss://`, `redis+cluster://` or `redis+sentinel://`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, hosts_and_path) =
            rest.rsplit_once('@').map_or((None, rest), |(l, p)| (Some(l), p));
        let (hosts, path) = hosts_and_path.split_once('/').unwrap_or((hosts_and_path, ""));
        let (suffix, tls) = match scheme {
            "redis" | "valkey" => ("", false),
            "rediss" | "valkeys" => ("", true),
            "redis+cluster" => ("cluster", false),
            "rediss+cluster" => ("cluster", true),
            "redis+sentinel" => ("sentinel", false),
            "rediss+sentinel" => ("sentinel", true),
            _ => return Err(invalid("its scheme is unknown")),
        };
        let (topology, db) = match suffix {
            "cluster" => (RedisTopology::Cluster, path),
            "sentinel" => {
                let (service, db) = path.split_once('/').unwrap_or((path, ""));
                (RedisTopology::Sentinel { service: service_name(service)? }, db)
            }
            _ => (RedisTopology::Standalone, path),
        };
        let port = if suffix == "sentinel" { SENTINEL_PORT } else { PORT };
        let hosts: Vec<_> =
            hosts.split(',').map(|host| host_of(host, port)).collect::<Result<_>>()?;
        if topology == RedisTopology::Standalone && hosts.len() > 1 {
            return Err(invalid("several hosts are a redis+cluster:// or a redis+sentinel://"));
        }
        let ca_file = ca_file(query)?;
        if ca_file.is_some() && !tls {
            return Err(invalid("?ca= is of use with rediss:// only"));
        }
        let (user, password) = login.map_or(Ok((None, None)), login_of)?;
        let tls = tls.then_some(RedisTls { ca_file });
        let url = Self { topology, hosts, tls, db: db_of(db)?, user, password };
        if url.topology == RedisTopology::Cluster && url.db != 0 {
            return Err(invalid("a cluster has only database 0"));
        }
        Ok(url)
    }

    /// Every host that the URL names, with login.
    pub(crate) fn connections(&self) -> Result<Vec<ConnectionInfo>> {
        self.addresses().into_iter().map(|address| self.connection(address)).collect()
    }

    pub(crate) fn connection(&self, address: ConnectionAddr) -> Result<ConnectionInfo> {
        let info = address.into_connection_info().map_err(|_| invalid("a host is not one"))?;
        Ok(info.set_redis_settings(self.login()).set_tcp_settings(Self::tcp()))
    }

    /// `TCP_NODELAY`, and keepalive to notice a server that has disappeared.
    pub(crate) fn tcp() -> TcpSettings {
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
    }

    /// Every host that the URL names.
    pub(crate) fn addresses(&self) -> Vec<ConnectionAddr> {
        let address = |(host, port): &(String, u16)| match self.tls {
            None => ConnectionAddr::Tcp(host.clone(), *port),
            Some(_) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
        };
        self.hosts.iter().map(address).collect()
    }

    /// Database, user and password.
    pub(crate) fn login(&self) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default().set_db(self.db).set_skip_set_lib_name();
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        login
    }

    pub(crate) const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The certificates to trust, if they are not those of the system.
    pub(crate) fn certificates(&self) -> Result<Option<TlsCertificates>> {
        let Some(RedisTls { ca_file }) = &self.tls else { return Ok(None) };
        let Some(file) = ca_file else { return Ok(None) };
        let pem = std::fs::read(file).map_err(|error| {
            Error::invalid(format!("redis: cannot read the certificates in {}", file.display()))
                .with_source(error)
        })?;
        Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(pem) }))
    }
}

/// Prints no login.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topology, hosts, tls, db, user: _, password: _ } = self;
        f.debug_struct("RedisUrl")
            .field("topology", topology)
            .field("hosts", hosts)
            .field("tls", &tls.is_some())
            .field("db", db)
            .finish_non_exhaustive()
    }
}

fn service_name(service: &str) -> Result<String> {
    if service.is_empty() {
        return Err(invalid("a redis+sentinel:// ends in /SERVICE, the name the sentinels know"));
    }
    decoded(service)
}

fn host_of(host: &str, default: u16) -> Result<(String, u16)> {
    semel_remote::host_and_port(host, default).map_err(invalid)
}

fn db_of(db: &str) -> Result<i64> {
    if db.is_empty() {
        Ok(0)
    } else {
        db.parse().map_err(|_| invalid("its database is not a number"))
    }
}

fn login_of(login: &str) -> Result<(Option<String>, Option<String>)> {
    // Without a colon it may be a password, which the driver would take for a user name.
    let Some((user, password)) = login.split_once(':') else {
        return Err(invalid("before the @ stands USER:PASSWORD or :PASSWORD"));
    };
    let part = |part: &str| if part.is_empty() { Ok(None) } else { decoded(part).map(Some) };
    Ok((part(user)?, part(password)?))
}

fn ca_file(query: &str) -> Result<Option<PathBuf>> {
    let mut ca_file = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("ca", _) if ca_file.is_some() => return Err(invalid("?ca= is there twice")),
            ("ca", file) if !file.is_empty() => ca_file = Some(PathBuf::from(decoded(file)?)),
            ("insecure", _) => {
                return Err(invalid("certificates are always checked; name yours with ?ca=FILE"));
            }
            _ => return Err(invalid("the only parameter is ?ca=FILE")),
        }
    }
    Ok(ca_file)
}

fn decoded(text: &str) -> Result<String> {
    semel_remote::decoded(text).map_err(invalid)
}

/// An error that does not print the URL, which may contain a password.
fn invalid(why: &str) -> Error {
    let subject = format!(
        "redis: the store's URL is not understood: {why}; it is like redis://USER:PASSWORD@HOST:6379/0, \
         rediss://HOST?ca=FILE, redis+cluster://HOST,HOST or redis+sentinel://HOST,HOST/SERVICE"
    );
    Error::new(ErrorKind::Invalid, subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Vec<(String, u16)> {
        RedisUrl::parse(url).unwrap().hosts
    }

    #[test]
    fn every_kind_of_url_is_understood() {
        assert_eq!(hosts("redis://localhost"), [("localhost".into(), 6379)]);
        assert_eq!(hosts("redis://[::1]:7000/3"), [("::1".into(), 7000)]);
        assert_eq!(hosts("redis://[::1]"), [("::1".into(), 6379)]);
        assert_eq!(hosts("redis+cluster://a:1,b")[1], ("b".into(), 6379));
        let sentinel = RedisUrl::parse("redis+sentinel://a,b:5/main/2").unwrap();
        assert_eq!(sentinel.topology, RedisTopology::Sentinel { service: "main".into() });
        assert_eq!((sentinel.hosts[0].1, sentinel.db), (26_379, 2));
        let tls = RedisUrl::parse("rediss://u:p%40ss@h?ca=/x/ca.pem").unwrap();
        assert_eq!((tls.user.as_deref(), tls.password.as_deref()), (Some("u"), Some("p@ss")));
        assert!(tls.is_tls());
    }

    #[test]
    fn a_bad_url_is_refused_and_not_shown() {
        for url in [
            "localhost",
            "http://:canary@a",
            "redis://:canary@",
            "redis://:canary@a:x",
            "redis://:canary@a/x",
            "redis://:canary@a,b",
            "redis://:canary@a?insecure",
            "rediss://:canary@a?insecure=1",
            "redis://:canary@a?ca=x",
            "redis+sentinel://:canary@a",
            "redis+cluster://:canary@a/1",
            "redis://:canary%@a",
            "redis://canary@a",
            "rediss://:canary@a?ca=x&ca=y",
        ] {
            let error = RedisUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error}");
        }
        let url = RedisUrl::parse("redis://u:canary@a").unwrap();
        assert!(!format!("{url:?}").contains("canary"));
    }
}
