//! The tables an inbox can live in.

use crate::names::Names;

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
