//! The URL of a store.

use std::{fmt, path::PathBuf, str::FromStr};

use semel_core::{Error, Result};

use super::{
    server_url::ServerUrl,
    store_kind::{StoreKind, no_store},
};

/// The URL of a store.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `memory:` | forgotten when the process ends | `memory` |
/// | `file:PATH` | a folder, through crash and power loss; one process at a time | `embedded` |
/// | `postgres://USER:PASSWORD@HOST/DATABASE` | a table that many processes share | `postgres` |
/// | `redis://HOST:PORT`, `redis+cluster://H1:P,H2:P`, `redis+sentinel://H1:P,H2:P/SERVICE`, `valkey://HOST:PORT`; with TLS `rediss…`, `valkeys…` | keys that many processes share | `redis` |
/// | `nats://HOST:PORT/BUCKET`, `nats://H1:P,H2:P/BUCKET`; with TLS `nats+tls://` | a KV bucket that many processes share | `nats` |
///
/// `?schema=NAME&table=NAME` of a PostgreSQL URL and `?prefix=NAME` of a Redis or NATS URL select the records on the
/// server. All other parameters are for the driver. A printed URL has no password and no parameters of the driver.
///
/// ```
/// use semel::StoreUrl;
///
/// let url: StoreUrl = "memory:".parse()?;
/// assert!(!url.is_shared());
/// # Ok::<(), semel::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(pub(super) StoreLocation);

#[derive(Clone, PartialEq, Eq)]
pub(super) enum StoreLocation {
    Memory,
    File(PathBuf),
    /// The parameters are schema and table.
    Postgres(ServerUrl<2>),
    /// The parameter is the prefix.
    Redis(ServerUrl<1>),
    /// The parameter is the prefix.
    Nats(ServerUrl<1>),
}

impl StoreLocation {
    #[cfg(not(all(
        feature = "memory",
        feature = "embedded",
        feature = "postgres",
        feature = "redis",
        feature = "nats"
    )))]
    pub(super) const fn kind(&self) -> StoreKind {
        match self {
            Self::Memory => StoreKind::Memory,
            Self::File(_) => StoreKind::File,
            Self::Postgres(_) => StoreKind::Postgres,
            Self::Redis(_) => StoreKind::Redis,
            Self::Nats(_) => StoreKind::Nats,
        }
    }
}

impl StoreUrl {
    /// The store in this folder.
    #[must_use]
    pub fn file(folder: impl Into<PathBuf>) -> Self {
        Self(StoreLocation::File(folder.into()))
    }

    /// The folder of a `file:` URL.
    #[must_use]
    pub fn folder(&self) -> Option<&std::path::Path> {
        match &self.0 {
            StoreLocation::File(folder) => Some(folder),
            StoreLocation::Memory
            | StoreLocation::Postgres(_)
            | StoreLocation::Redis(_)
            | StoreLocation::Nats(_) => None,
        }
    }

    /// True if several processes share these records. They need a namespace and the same hash secret.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        match &self.0 {
            StoreLocation::Memory | StoreLocation::File(_) => false,
            StoreLocation::Postgres(_) | StoreLocation::Redis(_) | StoreLocation::Nats(_) => true,
        }
    }

    /// True if the store's statistics count keys that are not semel's: Redis counts all keys of its database.
    #[must_use]
    pub const fn counts_foreign_keys(&self) -> bool {
        matches!(self.0, StoreLocation::Redis(_))
    }

    /// True if the records are lost when the process ends.
    #[must_use]
    pub const fn is_volatile(&self) -> bool {
        match &self.0 {
            StoreLocation::Memory => true,
            StoreLocation::File(_)
            | StoreLocation::Postgres(_)
            | StoreLocation::Redis(_)
            | StoreLocation::Nats(_) => false,
        }
    }
}

/// Errors never repeat the URL: it may hold a password.
impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once(':').ok_or_else(no_store)?;
        Ok(Self(match StoreKind::of(scheme)?.built_in()? {
            StoreKind::Memory if rest.is_empty() => StoreLocation::Memory,
            StoreKind::Memory => {
                return Err(Error::invalid("takes nothing after memory: ; write memory: alone"));
            }
            StoreKind::File => StoreLocation::File(folder(rest)?),
            StoreKind::Postgres => {
                StoreLocation::Postgres(ServerUrl::parse(text, ["schema", "table"])?)
            }
            StoreKind::Redis => StoreLocation::Redis(redis(text)?),
            StoreKind::Nats => StoreLocation::Nats(nats(text)?),
        }))
    }
}

fn folder(path: &str) -> Result<PathBuf> {
    // file:///var/lib and file:/var/lib are one folder; file://var/lib names the host var.
    let path = match path.strip_prefix("//") {
        None => path,
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(Error::invalid("names a host after file:// ; write file:PATH")),
    };
    if path.is_empty() || path.contains('\0') {
        return Err(Error::invalid("names no folder; write file:PATH, such as file:semel-data"));
    }
    Ok(path.into())
}

fn redis(text: &str) -> Result<ServerUrl<1>> {
    refuse_half_login(text, ":PASSWORD@")?;
    ServerUrl::parse(text, ["prefix"])
}

/// Refuses a single word before the @: it may be a secret, and user names are printed.
fn refuse_half_login(text: &str, secret: &str) -> Result<()> {
    let authority = text.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    let login = authority.and_then(|authority| authority.rsplit_once('@'));
    match login {
        Some((login, _)) if !login.contains(':') => Err(Error::invalid(format!(
            "has a name without a password; write USER:PASSWORD@ or {secret}"
        ))),
        _ => Ok(()),
    }
}

/// The URL must name a bucket.
fn nats(text: &str) -> Result<ServerUrl<1>> {
    refuse_half_login(text, ":TOKEN@")?;
    let server = ServerUrl::parse(text, ["prefix"])?;
    let location = server.url.split('?').next().and_then(|url| url.split_once("://"));
    match location.and_then(|(_, location)| location.split_once('/')) {
        Some((_, bucket)) if !bucket.is_empty() => Ok(server),
        _ => Err(Error::invalid(
            "names no bucket; write nats://HOST:PORT/BUCKET, such as nats://localhost:4222/ids",
        )),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            StoreLocation::Memory => f.write_str("memory:"),
            StoreLocation::File(path) => write!(f, "file:{}", path.display()),
            StoreLocation::Postgres(server) => server.fmt(f),
            StoreLocation::Redis(server) | StoreLocation::Nats(server) => server.fmt(f),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(all(
    test,
    feature = "memory",
    feature = "embedded",
    feature = "postgres",
    feature = "redis",
    feature = "nats"
))]
mod tests {
    use super::*;

    #[test]
    fn stores_are_urls() {
        assert_eq!("memory:".parse::<StoreUrl>().unwrap(), StoreUrl(StoreLocation::Memory));
        for (url, path) in [("file:a/b", "a/b"), ("file:/a", "/a"), ("file:///a", "/a")] {
            assert_eq!(url.parse::<StoreUrl>().unwrap(), StoreUrl::file(path), "{url}");
        }
        for url in [
            "memory:",
            "file:semel-data",
            "file:/a",
            "postgres://db/app",
            "postgresql://app@db:5432/app?schema=system&table=keys",
            "redis://cache:6379",
            "rediss://cache:6379/2?prefix=pay",
            "valkey://cache:6379",
            "valkeys://cache:6379",
            "redis+cluster://a:7000,b:7001",
            "rediss+cluster://a:7000,b:7001",
            "rediss+sentinel://a:1,b:2/main/0",
            "redis+sentinel://a:1,b:2/main/0",
            "nats://a:4222/ids",
            "nats+tls://a:1,b:2/ids?prefix=pay",
        ] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
    }

    #[test]
    fn stores_on_servers_are_shared() {
        for (url, shared) in [
            ("memory:", false),
            ("file:a", false),
            ("postgres://db/app", true),
            ("redis+cluster://a:1", true),
            ("nats://a:1/ids", true),
        ] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().is_shared(), shared, "{url}");
        }
    }

    #[test]
    fn every_other_url_is_refused_with_the_fix() {
        for bad in
            ["", "memory", "semel-data", "/a", "sqlite:a", "memory:x", "file:", "file://host/a"]
        {
            let error = bad.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(
                error.contains("write file:PATH") || error.contains("write memory:"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_unsupported_store_is_named_and_its_password_is_not_printed() {
        let error = "mssql://u:hunter2@h/d".parse::<StoreUrl>().unwrap_err();
        assert!(error.to_string().contains("not in this release"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_nats_url_names_its_bucket() {
        for url in [
            "nats://h",
            "nats://h:4222/",
            "nats+tls://a,b?prefix=p",
            "nats://:hunter2@h/?replicas=3",
        ] {
            let error = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains("write nats://HOST:PORT/BUCKET"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_not_taken_for_a_user_name_and_printed() {
        for (half, fix, whole, shown) in [
            ("nats://hunter2@h/ids", ":TOKEN@", "nats://:hunter2@h/ids", "nats://h/ids"),
            ("redis://hunter2@h:1", ":PASSWORD@", "redis://:hunter2@h:1", "redis://h:1"),
            ("valkeys://hunter2@h", ":PASSWORD@", "valkeys://a:hunter2@h", "valkeys://a@h"),
        ] {
            let error = half.parse::<StoreUrl>().unwrap_err();
            assert!(error.to_string().contains(fix), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
            assert_eq!(whole.parse::<StoreUrl>().unwrap().to_string(), shown);
        }
    }
}
