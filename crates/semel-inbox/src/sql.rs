//! The statements of an inbox. Every parameter is text and every answer is one text with the name `said`, so
//! that any driver can ask them.

use crate::schema::InboxVariant;
use crate::table::InboxTable;

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Patience, lock, id, type, consumer, day: `new`, `duplicate` or `busy`.
    pub(crate) claim: String,
    /// Patience, ids, types, consumer, days: the ids that are new, as JSON.
    pub(crate) claim_many: String,
    /// Ids, consumer, days, outcomes, formats, failed: how many were there.
    pub(crate) record: String,
    /// Ids, consumer, days: `[[id, failed, format, outcome], …]` as JSON.
    pub(crate) outcomes: String,
    /// Ids, consumer, days: how many there were.
    pub(crate) unclaim: String,
}

impl Statements {
    pub(crate) fn new(variant: InboxVariant, table: &InboxTable) -> Self {
        let form = Form::new(variant, table);
        Self {
            claim: form.claim(),
            claim_many: form.claim_many(),
            record: form.record(),
            outcomes: form.outcomes(),
            unclaim: form.unclaim(),
        }
    }
}

/// What differs between tables.
struct Form {
    table: String,
    constraint: String,
    columns: &'static str,
    id: &'static str,
    /// Which rows are meant by `asked`.
    same: &'static str,
    /// Looks for a row although a twin runs. Not in partitions: it would lock each of them.
    looks: bool,
}

impl Form {
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
        let looks = variant != InboxVariant::Partitioned;
        Self { table: table.quoted(), constraint, columns, id, same, looks }
    }

    /// Lock, timeout and insert in one trip. The row that is put is what a twin waits for, not longer than it
    /// has patience; the lock tells it at once. The caller's own timeout is put back.
    fn claim(&self) -> String {
        let Self { table, constraint, columns, id, same, looks } = self;
        let there = match looks {
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
                 WHEN free OR {there} THEN 'duplicate'
                 ELSE 'busy'
               END || substr(set_config('lock_timeout', was, true), 1, 0) AS said
             FROM asked"
        )
    }

    /// In the order of ids, so that two batches do not wait for each other.
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

    /// The rows that ids, consumer and days stand for.
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

    fn unclaim(&self) -> String {
        let Self { table, same, .. } = self;
        let asked = self.asked();
        format!(
            "WITH {asked}, gone AS (DELETE FROM {table} AS t USING asked WHERE {same} RETURNING 1)
             SELECT count(*)::text AS said FROM gone"
        )
    }
}

/// Texts as an array that the server reads.
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
    fn a_text_cannot_leave_its_place_in_an_array() {
        let texts = ["a", "", "NULL", "b\",\"c", "\\", "{}", "d,e", " "];
        let expected = r#"{"a","","NULL","b\",\"c","\\","{}","d,e"," "}"#;
        assert_eq!(array(texts.into_iter()), expected);
        assert_eq!(array([].into_iter()), "{}");
    }
}
