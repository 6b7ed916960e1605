//! Where records live.

use std::{fmt, path::PathBuf, str::FromStr};

/// A store this release has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// Forgotten when the process ends.
    Memory,
    /// In a folder, through crash and power loss.
    File(PathBuf),
}

impl StoreUrl {
    /// Without `--store`.
    pub(crate) fn standard() -> Self {
        Self::File("semel-data".into())
    }
}

/// Errors never repeat the URL: it may hold a password.
impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const CHOICES: &str = "write file:PATH (a folder, durable) or memory: (forgotten at exit)";
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("memory", _)) => Err("takes nothing after memory: ; write memory: alone".into()),
            Some(("file", path)) => folder(path).map(Self::File),
            Some(("postgres" | "postgresql", _)) => Err(later("PostgreSQL")),
            Some(("redis" | "rediss" | "redis+cluster" | "redis+sentinel", _)) => {
                Err(later("Redis"))
            }
            Some(("nats", _)) => Err(later("NATS")),
            Some(("mssql", _)) => Err(later("SQL Server")),
            _ => Err(format!("not a store; {CHOICES}")),
        }
    }
}

fn folder(path: &str) -> Result<PathBuf, String> {
    // file:///var/lib and file:/var/lib are one folder; file://var/lib names the host var.
    let path = match path.strip_prefix("//") {
        None => path,
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err("names a host after file:// ; write file:PATH".into()),
    };
    if path.is_empty() || path.contains('\0') {
        return Err("names no folder; write file:PATH, such as file:semel-data".into());
    }
    Ok(path.into())
}

fn later(store: &str) -> String {
    format!("{store} is not in this release; use file:PATH, on a disk of its own for each process")
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_urls() {
        assert_eq!("memory:".parse(), Ok(StoreUrl::Memory));
        for (url, path) in [("file:a/b", "a/b"), ("file:/a", "/a"), ("file:///a", "/a")] {
            assert_eq!(url.parse(), Ok(StoreUrl::File(path.into())), "{url}");
        }
        for url in ["memory:", "file:semel-data", "file:/a"] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
    }

    #[test]
    fn every_other_url_is_refused_with_the_fix() {
        for bad in
            ["", "memory", "semel-data", "/a", "sqlite:a", "memory:x", "file:", "file://host/a"]
        {
            let error = bad.parse::<StoreUrl>().unwrap_err();
            assert!(
                error.contains("write file:PATH") || error.contains("write memory:"),
                "{error}"
            );
        }
    }

    #[test]
    fn stores_to_come_are_named_and_passwords_are_not() {
        for bad in ["postgres", "postgresql", "redis", "rediss", "redis+cluster", "nats", "mssql"] {
            let error = format!("{bad}://u:hunter2@h/d").parse::<StoreUrl>().unwrap_err();
            assert!(error.contains("not in this release"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
