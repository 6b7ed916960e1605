//! The kinds of stores, and which of them are built in.

use semel_core::{Error, Result};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    Memory,
    File,
    Postgres,
    Redis,
    Nats,
}

impl StoreKind {
    /// The kind of a URL scheme.
    pub(super) fn of(scheme: &str) -> Result<Self> {
        match scheme {
            "memory" => Ok(Self::Memory),
            "file" => Ok(Self::File),
            "postgres" | "postgresql" => Ok(Self::Postgres),
            "redis" | "redis+cluster" | "redis+sentinel" | "valkey" => Ok(Self::Redis),
            "rediss" | "rediss+cluster" | "rediss+sentinel" | "valkeys" => Ok(Self::Redis),
            "nats" | "nats+tls" => Ok(Self::Nats),
            "mssql" => Err(not_yet_supported("SQL Server")),
            _ => Err(no_store()),
        }
    }

    /// Fails with the name of the missing feature if this kind is not built in.
    pub(super) fn built_in(self) -> Result<Self> {
        if self.feature().1 { Ok(self) } else { Err(self.missing()) }
    }

    pub(super) fn missing(self) -> Error {
        let feature = self.feature().0;
        Error::invalid(format!(
            "this store is not built in; build with the feature `{feature}` of the crate semel"
        ))
    }

    /// The feature of this kind, and whether it is enabled.
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

fn not_yet_supported(store: &str) -> Error {
    Error::invalid(format!("{store} is not in this release; {KINDS}"))
}

pub(super) fn no_store() -> Error {
    Error::invalid(format!("not a store; {KINDS}"))
}

const KINDS: &str = "write file:PATH (a folder, durable), memory: (forgotten at exit), \
                       postgres://USER@HOST/DATABASE, redis://HOST:PORT or nats://HOST:PORT/BUCKET";
