//! The gauges of an inbox's table.

use metrics::gauge;

use crate::InboxStats;

/// The names of the gauges. Each has the label `table`.
pub mod name {
    /// Events in the table, by the server's estimate.
    pub const PROCESSED_EVENTS_ROWS: &str = "processed_events_rows";
    /// Bytes of the table on disk, with indexes.
    pub const PROCESSED_EVENTS_BYTES: &str = "processed_events_bytes";
    /// The age of the oldest event.
    pub const PROCESSED_EVENTS_OLDEST: &str = "processed_events_oldest_seconds";
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of 2^53 is precise enough")]
pub(crate) fn set_gauges(table: &str, stats: &InboxStats) {
    let set = |name, value| gauge!(name, "table" => table.to_owned()).set(value);
    set(name::PROCESSED_EVENTS_ROWS, stats.rows as f64);
    set(name::PROCESSED_EVENTS_BYTES, stats.bytes as f64);
    set(name::PROCESSED_EVENTS_OLDEST, stats.oldest.as_secs_f64());
}
