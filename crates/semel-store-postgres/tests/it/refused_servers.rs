//! A server that is not fit for records is refused with the fix, and doctor reports problems.

use semel_core::{Claim, ErrorKind, Finding, KeyHash, Level, Store};
use semel_servers::{POSTGRES, Running};
use semel_store_postgres::PostgresStore;

use crate::common::{Database, Schema, claim_of, client, granted, key, url};

#[tokio::test]
async fn a_server_that_takes_no_writes_is_refused() {
    let schema = Schema::new();
    schema.store().await;
    let builder = PostgresStore::builder(schema.url_with("default_transaction_read_only=on"));
    let error = builder.schema(&schema.name).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("primary"), "{error}");
}

/// After a failover, a store may still have connections to a server that is a replica now.
#[tokio::test]
async fn a_primary_that_became_a_replica_is_refused_by_connected_stores() {
    let mut server = Running::start(&POSTGRES).unwrap();
    let schema = Schema::at(server.url().to_owned());
    let store = schema.store().await;
    granted(&store, &claim_of(key())).await;
    server.shut_down().unwrap();
    std::fs::write(server.data().join("cluster/standby.signal"), "").unwrap();
    server.restart().unwrap();
    let error = schema.builder().connect().await.unwrap_err();
    assert!(error.to_string().contains("replica"), "{error}");
    assert_eq!(store.claim(&claim_of(key())).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(store.get(&key()).await.is_err(), "a replica must not serve reads either");
    std::fs::remove_file(server.data().join("cluster/standby.signal")).unwrap();
    server.shut_down().unwrap();
    server.restart().unwrap();
    crate::common::until("the primary is back", || async {
        store.claim(&claim_of(key())).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_server_that_acknowledges_too_early_gives_a_warning() {
    let schema = Schema::new();
    let findings = |url: String| PostgresStore::builder(url).schema(&schema.name).checks();
    schema.store().await;
    let good = findings(schema.url.clone()).await.unwrap();
    assert!(good.iter().all(|finding| finding.level == Level::Good), "{good:?}");
    let early = findings(schema.url_with("synchronous_commit=off")).await.unwrap();
    let warning = |finding: &Finding| {
        finding.level == Level::Warning && finding.what.contains("synchronous_commit")
    };
    assert!(early.iter().any(warning), "{early:?}");
}

/// A process that is killed when the test ends.
struct WalReceiver(std::process::Child);

impl Drop for WalReceiver {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[tokio::test]
async fn replicas_that_are_not_synchronous_give_a_warning() {
    let server = Running::start(&POSTGRES).unwrap();
    let findings = async |setting: &str| {
        let url = Schema::at(server.url().to_owned()).url_with(setting);
        let found = PostgresStore::builder(url).checks().await.unwrap();
        found.into_iter().map(|it| format!("{:?} {} {:?}\n", it.level, it.what, it.fix)).collect()
    };
    let findings_text: String = findings("synchronous_commit=on").await;
    assert!(findings_text.contains("Good no replicas"), "{findings_text}");
    let (folder, port) = (server.data().join("received"), server.port().to_string());
    std::fs::create_dir(&folder).unwrap();
    let mut receive = std::process::Command::new(server.program().with_file_name("pg_receivewal"));
    receive
        .args(["--synchronous", "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-D"])
        .arg(&folder);
    let _receiver = WalReceiver(receive.spawn().unwrap());
    crate::common::until("the warning appears", || async {
        let findings_text: String = findings("synchronous_commit=on").await;
        findings_text.contains("Warning 1 replicas, none of them")
            && findings_text.contains("synchronous_standby_names")
    })
    .await;
    let named = [
        ("somebody", "Bad commits wait for a synchronous replica, and none is connected"),
        ("pg_receivewal", "Good 1 replicas, and commits wait for 1 of them"),
    ];
    for (name, expected) in named {
        let name = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
        server.sql(&name).unwrap();
        server.sql("SELECT pg_reload_conf()").unwrap();
        crate::common::until(expected, || async {
            let findings_text: String = findings("synchronous_commit=on").await;
            findings_text.contains(expected)
        })
        .await;
    }
    let findings_text: String = findings("synchronous_commit=remote_write").await;
    assert!(findings_text.contains("Warning synchronous_commit does not wait"), "{findings_text}");
}

#[tokio::test]
async fn checks_report_problems_with_a_fix() {
    let missing = Schema::new();
    let found = missing.builder().checks().await.unwrap();
    let bad: Vec<_> = found.iter().filter(|finding| finding.level == Level::Bad).collect();
    assert!(bad[0].fix.as_ref().unwrap().contains("semel migrate"), "{bad:?}");
    let unreachable =
        PostgresStore::builder("postgres://u:canary@127.0.0.1:1/d").checks().await.unwrap();
    assert_eq!(unreachable[0].level, Level::Bad);
    assert!(!format!("{unreachable:?}").contains("canary"));
}

#[tokio::test]
async fn wrong_addresses_name_the_fix_and_no_password() {
    let url = url();
    let (server, _) = url.rsplit_once('/').unwrap();
    for (url, fix) in [
        (format!("{server}/no_such_database"), "database"),
        (url.replace("postgres@", "nobody:canary@"), "user"),
        ("postgres://u:canary@127.0.0.1:1/d".to_owned(), "is the server up"),
    ] {
        let error = PostgresStore::connect(url).await.unwrap_err();
        assert!(error.to_string().contains(fix), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

/// On an older server any role may define operators in `public`, and they take precedence over the server's own.
#[tokio::test]
async fn sql_operators_of_another_role_are_not_used() {
    let database = Database::new().await;
    let steal = "CREATE FUNCTION public.nothing(bigint, interval) RETURNS interval LANGUAGE sql
          AS 'SELECT interval ''0''';
        CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.nothing)";
    client(&database.url()).await.batch_execute(steal).await.unwrap();
    let store = PostgresStore::builder(database.url()).migrate(true).connect().await.unwrap();
    let key = key();
    granted(&store, &claim_of(key)).await;
    assert!(matches!(store.claim(&claim_of(key)).await.unwrap(), Claim::Busy { .. }));
}

/// An operator `=` that is always true acts like a damaged index.
#[tokio::test]
async fn a_record_of_another_key_is_never_an_answer() {
    let schema = Schema::new();
    let store = schema.store().await;
    granted(&store, &claim_of(key())).await;
    let damage = "
        CREATE FUNCTION {s}.same(bytea, bytea) RETURNS boolean LANGUAGE sql AS 'SELECT true';
        CREATE OPERATOR {s}.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = {s}.same)";
    schema.sql(&damage.replace("{s}", &schema.name)).await;
    let url = schema.url_with(&format!("search_path={},pg_catalog", schema.name));
    let damaged =
        PostgresStore::builder(url).schema(&schema.name).connections(1).connect().await.unwrap();
    let error = damaged.get(&KeyHash::from_bytes([7; 32])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
