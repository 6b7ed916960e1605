//! Names of the tables, of the notification channel and of the migration lock.

use semel_core::{Error, Result};

/// A schema and a table, both safe to stand in a statement.
#[derive(Clone, Debug)]
pub(crate) struct PgNames {
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl PgNames {
    const MAX: usize = 48;

    pub(crate) fn new(schema: &str, table: &str) -> Result<Self> {
        check("schema", schema)?;
        check("table", table)?;
        Ok(Self { schema: schema.to_owned(), table: table.to_owned() })
    }

    /// The table of records, qualified.
    pub(crate) fn records(&self) -> String {
        self.qualified("")
    }

    /// The companion table, qualified.
    pub(crate) fn meta(&self) -> String {
        self.qualified("_meta")
    }

    fn qualified(&self, suffix: &str) -> String {
        format!("\"{}\".\"{}{suffix}\"", self.schema, self.table)
    }

    /// The channel of the change feed.
    pub(crate) fn channel(&self) -> String {
        // The name of a channel is an identifier of at most 63 bytes, and two tables must not share one.
        let name = format!("{}.{}", self.schema, self.table);
        format!("semel_{:016x}", fnv(name.as_bytes()))
    }

    /// The number of the advisory lock by which two migrations in one schema exclude each other.
    pub(crate) fn lock(&self) -> i64 {
        fnv(format!("semel migrate {}", self.schema).as_bytes()).cast_signed()
    }
}

fn check(what: &str, name: &str) -> Result<()> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if first && name.bytes().all(rest) && name.len() <= PgNames::MAX {
        return Ok(());
    }
    let max = PgNames::MAX;
    Err(Error::invalid(format!(
        "{what}: use 1 to {max} characters of a-z, 0-9 and _, the first one not a digit"
    )))
}

/// FNV-1a: the same number in every process and version.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_needs_quoting_is_refused() {
        let long = "a".repeat(49);
        for name in ["", "1a", "A", "a-b", "a\"b", "a.b", "a b", "ä", "a;", &long] {
            let error = PgNames::new(name, "t").unwrap_err();
            assert!(error.to_string().contains("schema"), "{name}: {error}");
            assert!(PgNames::new("s", name).unwrap_err().to_string().contains("table"));
        }
        let names = PgNames::new("system", "idempotency_keys").unwrap();
        assert_eq!(names.meta(), "\"system\".\"idempotency_keys_meta\"");
    }

    #[test]
    fn two_tables_have_two_channels() {
        let channel = |schema, table| PgNames::new(schema, table).unwrap().channel();
        assert_ne!(channel("a", "b_c"), channel("a_b", "c"));
        assert!(channel(&"a".repeat(48), &"b".repeat(48)).len() < 63);
    }
}
