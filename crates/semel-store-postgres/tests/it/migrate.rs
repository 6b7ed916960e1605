//! Migrations: applied once, by the first process, and never reverted.

use futures_util::future::join_all;
use semel_core::{ErrorKind, Level, Store};
use semel_store_postgres::PostgresStore;

use crate::common::{Schema, claim_of, client, granted, key};

#[tokio::test]
async fn migrations_are_applied_once() {
    let schema = Schema::new();
    assert_eq!(schema.builder().pending_migrations().await.unwrap().len(), 1);
    let applied = schema.builder().apply_migrations().await.unwrap();
    assert_eq!(applied.iter().map(|it| it.version).collect::<Vec<_>>(), [1]);
    assert!(schema.builder().apply_migrations().await.unwrap().is_empty());
    assert!(schema.builder().pending_migrations().await.unwrap().is_empty());
}

#[tokio::test]
async fn processes_that_start_together_apply_migrations_once() {
    let schema = Schema::new();
    let applied = join_all((0..8).map(|_| schema.builder().apply_migrations())).await;
    let applied: usize = applied.into_iter().map(|applied| applied.unwrap().len()).sum();
    assert_eq!(applied, 1);
}

#[tokio::test]
async fn missing_tables_are_refused_with_what_makes_them() {
    let schema = Schema::new();
    let error = schema.builder().migrate(false).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("semel migrate"), "{error}");
}

#[tokio::test]
async fn a_table_of_another_application_is_refused_and_not_changed() {
    let schema = Schema::new();
    let make = "CREATE SCHEMA {s}; CREATE TABLE {t} (mine text)".replace("{s}", &schema.name);
    schema.sql(&make).await;
    let error = schema.builder().connect().await.unwrap_err();
    assert!(error.to_string().contains("choose another"), "{error}");
    assert_eq!(schema.number("SELECT count(mine) FROM {t}").await, 0);
    assert_eq!(schema.builder().pending_migrations().await.unwrap().len(), 1);
}

#[tokio::test]
async fn tables_of_a_newer_semel_are_refused() {
    let schema = Schema::new();
    schema.store().await;
    schema.sql("UPDATE {t}_meta SET value = '99' WHERE name = 'schema_version'").await;
    for error in [
        schema.builder().connect().await.map(drop).unwrap_err(),
        schema.builder().migrate(false).connect().await.map(drop).unwrap_err(),
        schema.builder().apply_migrations().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("99"), "{error}");
    }
}

#[tokio::test]
async fn a_role_without_the_right_to_create_tables_uses_existing_ones() {
    let schema = Schema::new();
    schema.builder().apply_migrations().await.unwrap();
    let role = format!("role_{}", schema.name);
    let some =
        "CREATE ROLE {r} LOGIN; GRANT USAGE ON SCHEMA {s} TO {r}; GRANT SELECT ON {t}_meta TO {r}";
    schema.sql(&some.replace("{r}", &role).replace("{s}", &schema.name)).await;
    let url = schema.url.replace("postgres@", &format!("{role}@"));
    let builder = PostgresStore::builder(&url).schema(&schema.name).migrate(true);
    // The fix is statements to paste, and they are sufficient.
    let findings = builder.clone().checks().await.unwrap();
    let bad = findings.iter().find(|it| it.level == Level::Bad).expect("rights are missing");
    schema.sql(bad.fix.as_deref().unwrap()).await;
    let store = builder.connect().await.unwrap();
    granted(&store, &claim_of(key())).await;
    assert!(store.lead(std::time::Duration::from_secs(1)).await.unwrap());
    store.purge(10).await.unwrap();
    store.stats().await.unwrap();
    drop(store);
    let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    client(&schema.url).await.batch_execute(&drop).await.unwrap();
}
