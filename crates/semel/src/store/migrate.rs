//! Bringing a store's tables up to date.

use semel_core::Result;

use super::{StoreOptions, StoreUrl, url::Place};

/// Whether migrations are applied or only told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    /// Apply what is missing.
    Apply,
    /// Say what would be applied.
    DryRun,
}

impl StoreUrl {
    /// Brings the tables of a PostgreSQL store up to date, and says what that took, one line for each step.
    /// Other stores need nothing of the kind.
    ///
    /// # Errors
    ///
    /// When the server refuses; nothing was changed then.
    pub async fn migrate(&self, options: &StoreOptions, how: Migrate) -> Result<Vec<String>> {
        match &self.0 {
            #[cfg(feature = "postgres")]
            Place::Postgres(server) => {
                let builder = super::postgres::builder(server, options);
                let steps = match how {
                    Migrate::Apply => builder.apply_migrations().await,
                    Migrate::DryRun => builder.pending_migrations().await,
                };
                let steps = steps.map_err(|error| self.cannot_open(error))?;
                Ok(steps.iter().map(|step| format!("{}: {}", step.version, step.what)).collect())
            }
            #[cfg(not(feature = "postgres"))]
            Place::Postgres(_) => {
                let _ = (options, how);
                Err(super::choice::Choice::Postgres.missing())
            }
            Place::Memory | Place::File(_) | Place::Redis(_) | Place::Nats(_) => Ok(Vec::new()),
        }
    }

    /// True when the store has tables, which have to be migrated.
    #[must_use]
    pub const fn has_tables(&self) -> bool {
        matches!(self.0, Place::Postgres(_))
    }
}
