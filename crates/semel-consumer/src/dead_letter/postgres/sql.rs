//! The SQL of the table. All names are qualified, so that the search path of the connection does not matter.

/// Whether the server takes no writes.
pub(super) const IS_READ_ONLY: &str =
    "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean";

/// The columns, in the order of the parameters of `put`. `letter` is the whole letter; the others are copies for
/// queries by operators.
const COLUMNS: [&str; 10] = [
    "id", "last_at", "first_at", "attempts", "reason", "class", "consumer", "source", "event_id",
    "letter",
];

/// The statements for one table.
#[derive(Debug)]
pub(super) struct LetterStatements {
    /// The table, qualified and quoted.
    pub(super) table: String,
    /// Parameters: one for each column.
    pub(super) put: String,
    /// Parameter: id. Returns id and letter.
    pub(super) get: String,
    /// Parameter: limit. Returns ids and letters.
    pub(super) first_page: String,
    /// Parameters: time and id of the letter before, limit. Returns ids and letters.
    pub(super) next_page: String,
    /// Parameter: id. Returns its time.
    pub(super) position: String,
    /// Parameters: id, time, attempts. Returns the id if the row was there.
    pub(super) remove: String,
    /// Creates schema and table.
    pub(super) install: String,
    /// Fails if one of the other statements would.
    pub(super) check: String,
}

impl LetterStatements {
    pub(super) fn new(schema: &str, name: &str) -> Self {
        let table = format!("\"{schema}\".\"{name}\"");
        let read = format!("SELECT id, letter::text FROM {table}");
        let sorted = "ORDER BY last_at, id LIMIT";
        let statements = Self {
            put: put(&table, "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10::json"),
            get: format!("{read} WHERE id = $1"),
            first_page: format!("{read} {sorted} $1"),
            next_page: format!("{read} WHERE (last_at, id) > ($1, $2) {sorted} $3"),
            position: format!("SELECT last_at FROM {table} WHERE id = $1"),
            remove: format!(
                "DELETE FROM {table} WHERE id = $1 AND last_at = $2 AND attempts = $3 RETURNING id"
            ),
            install: install(schema, name, &table),
            check: String::new(),
            table,
        };
        Self { check: statements.check(), ..statements }
    }

    /// EXPLAIN plans a statement and checks the rights for it, but does not run it.
    fn check(&self) -> String {
        let put = put(&self.table, "'', now(), now(), 0, '', '', '', '', NULL, '{}'");
        let table = &self.table;
        format!(
            "EXPLAIN {put};
             EXPLAIN SELECT id, letter FROM {table} ORDER BY last_at, id LIMIT 1;
             EXPLAIN DELETE FROM {table} WHERE id = '' AND last_at = now() AND attempts = 0"
        )
    }
}

fn put(table: &str, values: &str) -> String {
    let columns = COLUMNS.join(", ");
    let replaced = COLUMNS.map(|column| format!("{column} = excluded.{column}")).join(", ");
    format!(
        "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT (id) DO UPDATE SET {replaced}"
    )
}

/// Looks first: `CREATE SCHEMA IF NOT EXISTS` needs the right to create it even if it exists. The advisory lock lets
/// one process at a time look and create. All of it is one transaction, because it is sent as one query.
///
/// `json` keeps the text as it was sent, other than `jsonb`, which refuses the escape of a zero character. Ids are
/// compared byte by byte, whatever the collation of the database is.
fn install(schema: &str, name: &str, table: &str) -> String {
    let lock = lock(table);
    format!(
        "SELECT pg_advisory_xact_lock({lock});
         DO $$ BEGIN
           IF to_regnamespace('\"{schema}\"') IS NULL THEN
             CREATE SCHEMA \"{schema}\";
           END IF;
           IF to_regclass('{table}') IS NULL THEN
             CREATE TABLE {table} (
               last_at timestamptz NOT NULL,
               first_at timestamptz NOT NULL,
               attempts bigint NOT NULL,
               id text COLLATE \"C\" CONSTRAINT \"{name}_pkey\" PRIMARY KEY,
               reason text NOT NULL,
               class text NOT NULL,
               consumer text NOT NULL,
               source text NOT NULL,
               event_id text,
               letter json NOT NULL
             );
             CREATE INDEX \"{name}_last_at\" ON {table} (last_at, id);
           END IF;
         END $$"
    )
}

/// The number of the advisory lock: FNV-1a, the same in every process and version.
fn lock(table: &str) -> i64 {
    let hash = format!("semel dead letters {table}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    hash.cast_signed()
}
