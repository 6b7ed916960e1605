//! The SQL of an inbox. Every parameter is a text, and every statement returns one text column with the name `said`, so
//! that any driver can run it.

use crate::schema::InboxVariant;
use crate::table::InboxTable;

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct InboxStatements {
    /// Parameters: patience, lock, id, type, consumer, day. Returns `new`, `duplicate` or `busy`.
    pub(crate) claim: String,
    /// Parameters: patience, ids, types, consumer, days. Returns the new ids, as JSON.
    pub(crate) claim_many: String,
    /// Parameters: ids, consumer, days, outcomes, formats, failed. Returns the number of updated rows.
    pub(crate) record: String,
    /// Parameters: ids, consumer, days. Returns `[[id, failed, format, outcome], …]` as JSON.
    pub(crate) outcomes: String,
    /// Parameters: ids, consumer, days. Returns the number of deleted rows.
    pub(crate) unclaim: String,
    /// Parameters: ids, consumer, days. Returns the number of deleted rows of failed events. Not for a table without
    /// outcomes.
    pub(crate) forget_failures: String,
    /// Parameters: id, type, consumer, day, most. Returns the number of the attempt; nothing if another attempt got it
    /// at the same time. Not for a table without consumers.
    pub(crate) count_attempt: String,
    /// Parameters: ids, types, consumer, days, other ids. Inserts each row whose other row does not exist, and returns
    /// the ids of the new rows, as JSON. Not for a table without consumers.
    pub(crate) insert_attempts: String,
}

impl InboxStatements {
    pub(crate) fn new(variant: InboxVariant, table: &InboxTable) -> Self {
        let template = StatementTemplate::new(variant, table);
        Self {
            claim: template.claim(),
            claim_many: template.claim_many(),
            record: template.record(),
            outcomes: template.outcomes(),
            unclaim: template.delete(""),
            forget_failures: template.delete(" AND t.failed"),
            count_attempt: template.count_attempt(),
            insert_attempts: template.insert_attempts(),
        }
    }
}

/// The parts of the statements that differ between tables.
struct StatementTemplate {
    table: String,
    constraint: String,
    columns: &'static str,
    id: &'static str,
    /// The condition that joins the table to the CTE `asked`.
    same: &'static str,
    /// Whether the claim also reads the table when another copy holds the advisory lock. Not with partitions: the read
    /// would lock each of them.
    reads_locked: bool,
}

impl StatementTemplate {
    fn new(variant: InboxVariant, table: &InboxTable) -> Self {
        let (columns, id, same) = match variant {
            InboxVariant::Minimal => {
                ("event_id, event_type", "uuid", "t.event_id = asked.event_id")
            }
            InboxVariant::Full => (
                "event_id, event_type, consumer, occurred_on",
                "text",
                "t.consumer = asked.consumer AND t.event_id = asked.event_id",
            ),
            InboxVariant::Partitioned => (
                "event_id, event_type, consumer, occurred_on",
                "text",
                "t.consumer = asked.consumer AND t.event_id = asked.event_id
                 AND t.occurred_on = asked.occurred_on",
            ),
        };
        let constraint = format!("\"{}_pkey\"", table.name);
        let reads_locked = variant != InboxVariant::Partitioned;
        Self { table: table.quoted(), constraint, columns, id, same, reads_locked }
    }

    /// Takes the advisory lock, sets the lock timeout and inserts, in one round trip. Another copy that fails to get
    /// the advisory lock is busy at once; one that inserts without it (a batch) waits for this row, up to its
    /// patience. The caller's own lock timeout is restored.
    fn claim(&self) -> String {
        let Self { table, constraint, columns, id, same, reads_locked } = self;
        let exists = match reads_locked {
            true => format!("EXISTS (SELECT FROM {table} AS t WHERE {same})"),
            false => "false".to_owned(),
        };
        format!(
            "WITH asked AS MATERIALIZED (
               SELECT current_setting('lock_timeout') AS was,
                 set_config('lock_timeout', $1::text, true) AS patience,
                 pg_try_advisory_xact_lock($2::text::bigint) AS free,
                 current_setting('semel.begun', true) = 'on' AS begun,
                 $3::text::{id} AS event_id, $4::text AS event_type, $5::text AS consumer,
                 nullif($6::text, '')::date AS occurred_on
             ), put AS (
               INSERT INTO {table} ({columns})
               SELECT {columns} FROM asked WHERE free AND begun AND patience IS NOT NULL
               ON CONFLICT ON CONSTRAINT {constraint} DO NOTHING RETURNING 1
             )
             SELECT CASE
                 WHEN begun IS NOT TRUE THEN 'outside'
                 WHEN EXISTS (SELECT FROM put) THEN 'new'
                 WHEN free OR {exists} THEN 'duplicate'
                 ELSE 'busy'
               END || substr(set_config('lock_timeout', was, true), 1, 0) AS said
             FROM asked"
        )
    }

    /// Inserts in the order of ids, so that two batches do not wait for each other.
    fn claim_many(&self) -> String {
        let Self { table, constraint, columns, id, .. } = self;
        format!(
            "WITH asked AS MATERIALIZED (
               SELECT current_setting('lock_timeout') AS was,
                 set_config('lock_timeout', $1::text, true) AS patience,
                 current_setting('semel.begun', true) = 'on' AS begun
             ), given AS (
               SELECT g.id::{id} AS event_id, g.type AS event_type, $4::text AS consumer,
                 nullif(g.day, '')::date AS occurred_on
               FROM asked, unnest($2::text::text[], $3::text::text[], $5::text::text[]) AS g(id, type, day)
               WHERE patience IS NOT NULL AND begun
             ), put AS (
               INSERT INTO {table} ({columns}) SELECT {columns} FROM given ORDER BY event_id
               ON CONFLICT ON CONSTRAINT {constraint} DO NOTHING RETURNING event_id::text AS id
             )
             SELECT CASE WHEN begun IS NOT TRUE THEN 'outside'
                 ELSE coalesce((SELECT json_agg(id) FROM put)::text, '[]') END
               || substr(set_config('lock_timeout', was, true), 1, 0) AS said
             FROM asked"
        )
    }

    /// The CTE `asked`: one row for each id, with consumer and day.
    fn asked(&self) -> String {
        let id = self.id;
        format!(
            "asked AS (
               SELECT g.id::{id} AS event_id, $2::text AS consumer, nullif(g.day, '')::date AS occurred_on
               FROM unnest($1::text::text[], $3::text::text[]) AS g(id, day)
             )"
        )
    }

    fn record(&self) -> String {
        let Self { table, same, id, .. } = self;
        format!(
            "WITH asked AS (
               SELECT g.id::{id} AS event_id, $2::text AS consumer, nullif(g.day, '')::date AS occurred_on,
                 decode(nullif(g.outcome, ''), 'hex') AS outcome, g.format::smallint AS format,
                 g.failed::boolean AS failed
               FROM unnest($1::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
                 $6::text::text[]) AS g(id, day, outcome, format, failed)
             ), done AS (
               UPDATE {table} AS t
               SET outcome = asked.outcome, outcome_format = asked.format, failed = asked.failed
               FROM asked WHERE {same} RETURNING 1
             )
             SELECT count(*)::text AS said FROM done"
        )
    }

    fn outcomes(&self) -> String {
        let Self { table, same, .. } = self;
        let asked = self.asked();
        format!(
            "WITH {asked}
             SELECT coalesce(json_agg(json_build_array(t.event_id::text, t.failed, t.outcome_format,
               encode(t.outcome, 'hex')))::text, '[]') AS said
             FROM {table} AS t, asked WHERE {same}"
        )
    }

    /// Inserts the row after the last one of `1#ID`, `2#ID`, …. Not the first free number: an attempt with an earlier
    /// number may have been taken back.
    fn count_attempt(&self) -> String {
        let Self { table, columns, same, .. } = self;
        format!(
            "WITH asked AS MATERIALIZED (
               SELECT n || '#' || $1::text AS event_id, $2::text AS event_type, $3::text AS consumer,
                 nullif($4::text, '')::date AS occurred_on, n
               FROM generate_series(1, $5::text::int) AS n
             ), counted AS (
               SELECT 1 + coalesce(max(n), 0) AS attempt FROM {table} AS t, asked WHERE {same}
             ), put AS (
               INSERT INTO {table} ({columns})
               SELECT {columns} FROM asked, counted WHERE n = attempt ON CONFLICT DO NOTHING RETURNING 1
             )
             SELECT CASE WHEN attempt > $5::text::int OR EXISTS (SELECT FROM put) THEN attempt::text END AS said
             FROM counted"
        )
    }

    /// Inserts in the order of ids, so that two statements do not wait for each other.
    fn insert_attempts(&self) -> String {
        let Self { table, columns, same, .. } = self;
        let same_as_other = same.replace("asked.event_id", "asked.other_id");
        format!(
            "WITH asked AS (
               SELECT g.id AS event_id, g.type AS event_type, $3::text AS consumer,
                 nullif(g.day, '')::date AS occurred_on, g.other AS other_id
               FROM unnest($1::text::text[], $2::text::text[], $4::text::text[], $5::text::text[])
                 AS g(id, type, day, other)
             ), put AS (
               INSERT INTO {table} ({columns})
               SELECT {columns} FROM asked
               WHERE NOT EXISTS (SELECT FROM {table} AS t WHERE {same_as_other}) ORDER BY event_id
               ON CONFLICT DO NOTHING RETURNING event_id::text AS id
             )
             SELECT coalesce(json_agg(id)::text, '[]') AS said FROM put"
        )
    }

    /// Deletes the rows of these events for which `also` is true.
    fn delete(&self, also: &str) -> String {
        let Self { table, same, .. } = self;
        let asked = self.asked();
        format!(
            "WITH {asked}, gone AS (DELETE FROM {table} AS t USING asked WHERE {same}{also} RETURNING 1)
             SELECT count(*)::text AS said FROM gone"
        )
    }
}

/// The text of a PostgreSQL array.
pub(crate) fn array<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut array = String::from("{");
    for (at, text) in texts.enumerate() {
        array.push_str(if at == 0 { "\"" } else { ",\"" });
        for letter in text.chars() {
            if matches!(letter, '"' | '\\') {
                array.push('\\');
            }
            array.push(letter);
        }
        array.push('"');
    }
    array.push('}');
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_an_array_is_escaped() {
        let texts = ["a", "", "NULL", "b\",\"c", "\\", "{}", "d,e", " "];
        let expected = r#"{"a","","NULL","b\",\"c","\\","{}","d,e"," "}"#;
        assert_eq!(array(texts.into_iter()), expected);
        assert_eq!(array([].into_iter()), "{}");
    }
}
