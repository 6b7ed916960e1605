//! The tables an inbox can live in.

use semel_core::{Error, Result};

use crate::names::Names;

/// The oldest server, by its `server_version_num`, that detaches partitions while others insert.
const PARTITIONS_SINCE: u32 = 140_000;

/// What the table of an inbox looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InboxVariant {
    /// `event_id UUID PRIMARY KEY, event_type, processed_at`: one consumer per table, and no outcomes.
    Minimal,
    /// For several consumers, ids of any form, and outcomes that duplicates are answered with.
    #[default]
    Full,
    /// As [`InboxVariant::Full`], in partitions by the day that the producer gave the event: what is too old
    /// is dropped with its partition.
    Partitioned,
}

impl InboxVariant {
    pub(super) const fn keeps_outcomes(self) -> bool {
        !matches!(self, Self::Minimal)
    }

    /// Whether a server of this version can have such a table.
    pub(super) fn check_server(self, version: u32) -> Result<()> {
        match self {
            Self::Partitioned if version < PARTITIONS_SINCE => Err(Error::invalid(
                "inbox: partitions need PostgreSQL 14 or newer, and the server is older; upgrade it, or use the \
                 variant Full",
            )),
            Self::Minimal | Self::Full | Self::Partitioned => Ok(()),
        }
    }

    /// What makes the table; nothing if it is there. Ids are compared byte by byte, whatever the database sorts by.
    pub(super) fn install(self, names: &Names) -> String {
        let (table, name) = (names.records(), &names.table);
        let indexes = format!(
            "CREATE INDEX IF NOT EXISTS \"idx_{name}_type\" ON {table} (event_type);
             CREATE INDEX IF NOT EXISTS \"idx_{name}_processed_at\" ON {table} (processed_at)"
        );
        let columns = match self {
            Self::Minimal => format!(
                "event_id UUID CONSTRAINT \"{name}_pkey\" PRIMARY KEY,
                 event_type VARCHAR(100) NOT NULL,
                 processed_at TIMESTAMPTZ NOT NULL DEFAULT NOW()"
            ),
            Self::Full | Self::Partitioned => {
                let (day, key) = match self {
                    Self::Partitioned => ("NOT NULL", "consumer, event_id, occurred_on"),
                    Self::Minimal | Self::Full => ("", "consumer, event_id"),
                };
                format!(
                    "processed_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
                     occurred_on DATE {day},
                     outcome_format SMALLINT,
                     failed BOOLEAN NOT NULL DEFAULT FALSE,
                     consumer TEXT COLLATE \"C\" NOT NULL,
                     event_id TEXT COLLATE \"C\" NOT NULL,
                     event_type VARCHAR(100) NOT NULL,
                     outcome BYTEA,
                     CONSTRAINT \"{name}_pkey\" PRIMARY KEY ({key})"
                )
            }
        };
        let partitions = match self {
            Self::Partitioned => "PARTITION BY RANGE (occurred_on)",
            Self::Minimal | Self::Full => "",
        };
        format!("CREATE TABLE IF NOT EXISTS {table} ({columns}) {partitions}; {indexes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_need_a_server_that_detaches_them_beside_inserts() {
        let refused = InboxVariant::Partitioned.check_server(130_021).unwrap_err();
        assert!(refused.to_string().contains("PostgreSQL 14"), "{refused}");
        InboxVariant::Partitioned.check_server(140_000).unwrap();
        InboxVariant::Full.check_server(130_021).unwrap();
        InboxVariant::Minimal.check_server(130_021).unwrap();
    }
}
