//! Opens an inbox for maintenance, on the server that a URL names.

use std::time::Duration;

use semel_core::{Error, Result};
use semel_inbox::InboxMaintenance;

use super::{StoreOptions, StoreUrl, url::StoreLocation};

impl StoreUrl {
    /// Opens the maintenance of the inbox in `table`, which is `[SCHEMA.]TABLE`, on this server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when this is not PostgreSQL, the table is not that of an
    /// inbox, or the retention is too short; else when the server cannot be reached.
    pub async fn inbox(&self, table: &str, retention: Duration) -> Result<InboxMaintenance> {
        let StoreLocation::Postgres(server) = &self.0 else {
            return Err(Error::invalid(format!(
                "{self} has no inbox; name the PostgreSQL that its table is in: postgres://USER@HOST/DATABASE"
            )));
        };
        let builder = super::postgres::builder(server, &StoreOptions::default());
        let named =
            |error: Error| Error::new(error.kind(), format!("{self}: {error}")).with_source(error);
        let opening = InboxMaintenance::open(builder.maintenance_connection(), table, retention);
        opening.await.map_err(named)
    }
}
