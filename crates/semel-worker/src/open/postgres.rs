//! Dead letters in a PostgreSQL table, by URL.

use std::sync::Arc;

use anyhow::{Result, bail};
use semel::{PostgresStore, StoreUrl};
use semel_consumer::dead_letter::{DeadLetterQueue, PgDeadLetters};

use super::OnMissing;

/// The table that a URL names, and the URL for the driver.
#[derive(Debug, PartialEq, Eq)]
struct LetterTable {
    driver: String,
    schema: Option<String>,
    table: Option<String>,
}

/// Checks a URL without a connection.
pub(super) fn check(url: &str) -> Result<()> {
    letters(url).map(drop)
}

pub(super) async fn open(url: &str, on_missing: OnMissing) -> Result<Arc<dyn DeadLetterQueue>> {
    let letters = letters(url)?;
    if on_missing == OnMissing::Create {
        letters.install().await?;
    }
    Ok(Arc::new(letters))
}

fn letters(url: &str) -> Result<PgDeadLetters> {
    let LetterTable { driver, schema, table } = LetterTable::parse(url)?;
    // The connections of the store know TLS and the limits of a server.
    let connect = move || PostgresStore::builder(&*driver).maintenance_connection();
    let mut letters = PgDeadLetters::builder(connect);
    if let Some(schema) = schema {
        letters = letters.schema(schema);
    }
    if let Some(table) = table {
        letters = letters.table(table);
    }
    Ok(letters.build()?)
}

impl LetterTable {
    fn parse(url: &str) -> Result<Self> {
        // Refuses what this function could misread, such as a password with a ? in it, and never shows it.
        url.parse::<StoreUrl>()?;
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut parsed = Self { driver: address.to_owned(), schema: None, table: None };
        let mut rest = Vec::new();
        for parameter in query.split('&').filter(|it| !it.is_empty()) {
            match parameter.split_once('=') {
                Some(("schema", schema)) => parsed.schema = Some(schema.to_owned()),
                Some(("table", table)) => parsed.table = Some(table.to_owned()),
                Some(("connections", _)) => {
                    bail!("dead letters use one connection; leave connections out")
                }
                Some(_) | None => rest.push(parameter),
            }
        }
        if !rest.is_empty() {
            parsed.driver = format!("{address}?{}", rest.join("&"));
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_for_semel_and_the_rest_is_for_the_driver() {
        let parse = |url| LetterTable::parse(url).unwrap();
        let named = |driver: &str, schema: Option<&str>, table: Option<&str>| LetterTable {
            driver: driver.to_owned(),
            schema: schema.map(str::to_owned),
            table: table.map(str::to_owned),
        };
        let plain = "postgres://app:secret@db/app";
        assert_eq!(parse(plain), named(plain, None, None));
        assert_eq!(
            parse("postgres://app@db/app?table=dead&sslmode=require&schema=ops"),
            named("postgres://app@db/app?sslmode=require", Some("ops"), Some("dead"))
        );
    }

    #[test]
    fn a_url_that_could_be_misread_is_refused_and_not_shown() {
        for url in ["postgres://u:canary?x@h/d", "postgres://u@h/d?table=canary;drop"] {
            let error = LetterTable::parse(url).unwrap_err();
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
