//! The variants of an inbox's table, and the SQL that creates them.

use semel_core::{Error, Result};

use crate::table::InboxTable;

/// The oldest server, by its `server_version_num`, that can detach a partition during inserts.
const PARTITIONS_SINCE: u32 = 140_000;

/// The variants of an inbox's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InboxVariant {
    /// `event_id UUID PRIMARY KEY, event_type, processed_at`: one consumer per table, and no outcomes.
    Minimal,
    /// For several consumers, ids of any form, and outcomes that duplicates get.
    #[default]
    Full,
    /// As [`InboxVariant::Full`], partitioned by the day that the producer gave the event. Old events are dropped with
    /// their partition.
    Partitioned,
}

impl InboxVariant {
    pub(crate) const fn keeps_outcomes(self) -> bool {
        !matches!(self, Self::Minimal)
    }

    /// Refuses a server whose version is too old for this variant.
    pub(crate) fn check_server(self, version: u32) -> Result<()> {
        match self {
            Self::Partitioned if version < PARTITIONS_SINCE => Err(Error::invalid(
                "inbox: partitions need PostgreSQL 14 or newer, and the server is older; upgrade it, or use the \
                 variant Full",
            )),
            Self::Minimal | Self::Full | Self::Partitioned => Ok(()),
        }
    }

    /// Creates the table and its indexes if they do not exist. It looks for them first, because `CREATE INDEX IF NOT
    /// EXISTS` on an existing index would wait for every running handler, and all claims would wait behind it. Ids are
    /// compared byte by byte, whatever the collation of the database is.
    pub(crate) fn install(self, table: &InboxTable) -> String {
        let (schema, name, table) = (&table.schema, &table.name, table.quoted());
        let unless_exists = |existing: &str, create: String| {
            format!(
                "IF to_regclass('\"{}\".\"{existing}\"') IS NULL THEN {create}; END IF;",
                schema
            )
        };
        let index = |of: &str, column: &str| {
            let index = format!("idx_{name}_{of}");
            unless_exists(&index, format!("CREATE INDEX \"{index}\" ON {table} ({column})"))
        };
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
        let create = unless_exists(name, format!("CREATE TABLE {table} ({columns}) {partitions}"));
        let (types, times) = (index("type", "event_type"), index("processed_at", "processed_at"));
        format!("DO $$ BEGIN {create} {types} {times} END $$")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_need_a_server_that_can_detach_them_during_inserts() {
        let refused = InboxVariant::Partitioned.check_server(130_021).unwrap_err();
        assert!(refused.to_string().contains("PostgreSQL 14"), "{refused}");
        InboxVariant::Partitioned.check_server(140_000).unwrap();
        InboxVariant::Full.check_server(130_021).unwrap();
        InboxVariant::Minimal.check_server(130_021).unwrap();
    }
}
