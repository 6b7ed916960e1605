//! The name of an inbox's table.

use semel_core::{Error, Result};

/// A schema and a table, both safe to stand in a statement.
#[derive(Clone, Debug)]
pub(crate) struct InboxTable {
    pub(crate) schema: String,
    pub(crate) name: String,
}

impl InboxTable {
    const MAX: usize = 48;

    pub(crate) fn new(schema: &str, name: &str) -> Result<Self> {
        check("schema", schema)?;
        check("table", name)?;
        Ok(Self { schema: schema.to_owned(), name: name.to_owned() })
    }

    /// The table, qualified and quoted.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\".\"{}\"", self.schema, self.name)
    }

    /// The number of the advisory lock of the process that maintains the table.
    pub(crate) fn maintenance_lock(&self) -> i64 {
        // FNV-1a: the same number in every process and version, so the text keeps the word of earlier versions.
        let hash = format!("semel upkeep {}", self.quoted())
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        hash.cast_signed()
    }
}

fn check(what: &str, name: &str) -> Result<()> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if first && name.bytes().all(rest) && name.len() <= InboxTable::MAX {
        return Ok(());
    }
    let max = InboxTable::MAX;
    Err(Error::invalid(format!(
        "{what}: use 1 to {max} characters of a-z, 0-9 and _, the first one not a digit"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_needs_quoting_is_refused() {
        let long = "a".repeat(49);
        for name in ["", "1a", "A", "a-b", "a\"b", "a.b", "a b", "ä", "a;", &long] {
            let error = InboxTable::new(name, "t").unwrap_err();
            assert!(error.to_string().contains("schema"), "{name}: {error}");
            assert!(InboxTable::new("s", name).unwrap_err().to_string().contains("table"));
        }
    }

    #[test]
    fn the_number_of_the_lock_is_the_same_in_every_version() {
        let table = InboxTable::new("public", "processed_events").unwrap();
        assert_eq!(table.maintenance_lock(), 4_785_124_358_497_605_068);
    }
}
