//! Migrates the tables of a store.

use semel_core::Result;

use super::{StoreOptions, StoreUrl, url::StoreLocation};

/// Whether migrations are applied or only listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    /// Applies the missing migrations.
    Apply,
    /// Lists the migrations that would be applied.
    DryRun,
}

impl StoreUrl {
    /// Migrates the tables of a PostgreSQL store, and returns one line for each migration. Other stores have no
    /// migrations.
    ///
    /// # Errors
    ///
    /// If the server refuses. Nothing was changed then.
    pub async fn migrate(&self, options: &StoreOptions, how: Migrate) -> Result<Vec<String>> {
        match &self.0 {
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(server) => {
                let builder = super::postgres::builder(server, options);
                let steps = match how {
                    Migrate::Apply => builder.apply_migrations().await,
                    Migrate::DryRun => builder.pending_migrations().await,
                };
                let steps = steps.map_err(|error| self.cannot_open(error))?;
                Ok(steps.iter().map(|step| format!("{}: {}", step.version, step.what)).collect())
            }
            #[cfg(not(feature = "postgres"))]
            StoreLocation::Postgres(_) => {
                let _ = (options, how);
                Err(super::store_kind::StoreKind::Postgres.missing())
            }
            StoreLocation::Memory
            | StoreLocation::File(_)
            | StoreLocation::Redis(_)
            | StoreLocation::Nats(_) => Ok(Vec::new()),
        }
    }

    /// True when the store has tables, which have to be migrated.
    #[must_use]
    pub const fn has_tables(&self) -> bool {
        matches!(self.0, StoreLocation::Postgres(_))
    }
}
