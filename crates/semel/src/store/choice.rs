//! Which stores are built in.

use semel_core::{Error, Result};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Memory,
    File,
    Postgres,
    Redis,
    Nats,
}

impl Choice {
    /// The kind that a scheme names.
    pub(super) fn of(scheme: &str) -> Result<Self> {
        match scheme {
            "memory" => Ok(Self::Memory),
            "file" => Ok(Self::File),
            "postgres" | "postgresql" => Ok(Self::Postgres),
            "redis" | "redis+cluster" | "redis+sentinel" | "valkey" => Ok(Self::Redis),
            "rediss" | "rediss+cluster" | "rediss+sentinel" | "valkeys" => Ok(Self::Redis),
            "nats" | "nats+tls" => Ok(Self::Nats),
            "mssql" => Err(later("SQL Server")),
            _ => Err(no_store()),
        }
    }

    /// Says which feature is missing, if one is.
    pub(super) fn built_in(self) -> Result<Self> {
        if self.feature().1 { Ok(self) } else { Err(self.missing()) }
    }

    pub(super) fn missing(self) -> Error {
        let feature = self.feature().0;
        Error::invalid(format!(
            "this store is not built in; build with the feature `{feature}` of the crate semel"
        ))
    }

    /// Its feature, and whether that is on.
    const fn feature(self) -> (&'static str, bool) {
        match self {
            Self::Memory => ("memory", cfg!(feature = "memory")),
            Self::File => ("embedded", cfg!(feature = "embedded")),
            Self::Postgres => ("postgres", cfg!(feature = "postgres")),
            Self::Redis => ("redis", cfg!(feature = "redis")),
            Self::Nats => ("nats", cfg!(feature = "nats")),
        }
    }
}

fn later(store: &str) -> Error {
    Error::invalid(format!("{store} is not in this release; {CHOICES}"))
}

pub(super) fn no_store() -> Error {
    Error::invalid(format!("not a store; {CHOICES}"))
}

const CHOICES: &str = "write file:PATH (a folder, durable), memory: (forgotten at exit), \
                       postgres://USER@HOST/DATABASE, redis://HOST:PORT or nats://HOST:PORT/BUCKET";
