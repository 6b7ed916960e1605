//! A shared store that cannot be used is reported with the reason and the fix.

use semel_servers::{POSTGRES, REDIS, Running, pgbouncer};

use super::{SharedStore, on_each};
use crate::harness::{CommandOutput, Reserved, Setup, TestUpstream, command, run, run_command};

on_each! {
    another_hash_secret_is_refused
    operator_commands_do_not_set_the_hash_secret
    the_doctor_reports_a_missing_namespace
}

/// Runs a gateway that does not start on this store.
async fn gateway(store: &str) -> CommandOutput {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path());
    command.args(["gateway", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"]);
    command.args(["--principal", "anonymous", "--namespace", "n"]).env("SEMEL_STORE", store);
    run_command(command).await
}

/// Asserts that the gateway and the doctor refuse this store.
async fn assert_refused(store: &str, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let refused = gateway(store).await;
    refused.assert_stderr(&[1], words);
    assert!(!refused.stderr.contains("hunter2"), "{refused:#?}");
    let doctor = run(folder.path(), &["doctor", "--namespace", "n", "--store", store]).await;
    assert_eq!(doctor.code, Some(1), "{doctor:#?}");
    assert!(doctor.stdout.contains("BAD") && doctor.stdout.contains("fix: "), "{doctor:#?}");
    assert!(!format!("{doctor:?}").contains("hunter2"), "{doctor:#?}");
}

/// The first gateway and the second one are refused.
#[tokio::test]
async fn a_pool_in_transaction_mode_is_refused_with_the_fix() {
    let postgres = Running::start(&POSTGRES).unwrap();
    let pool = Running::start(&pgbouncer(postgres.port(), &["pool_mode = transaction"])).unwrap();
    for _ in 0..2 {
        assert_refused(pool.url(), &["connect to the server directly", "pool_mode = session"])
            .await;
    }
}

async fn another_hash_secret_is_refused(store: SharedStore) {
    let upstream = TestUpstream::counting().await;
    let secret = |text: &str| store.to(&upstream).variable("SEMEL_HASH_SECRET", text);
    let _first = secret("0123456789abcdef").start().await;
    let _same = secret("0123456789abcdef").start().await;
    for words in [&["keys", "list"][..], &["purge"]] {
        let ended = store.semel(words).await;
        ended.assert_stderr(&[1], &["secret", "--hash-secret-file", "SEMEL_HASH_SECRET"]);
    }
    let doctor = store.semel(&["doctor"]).await;
    assert!(doctor.code == Some(1) && doctor.stdout.contains("secret"), "{doctor:#?}");
}

/// The first gateway sets the hash secret, even if commands have read the store before.
async fn operator_commands_do_not_set_the_hash_secret(store: SharedStore) {
    store.stdout(&["migrate"]).await;
    for words in [&["doctor"][..], &["keys", "list"], &["purge"]] {
        store.stdout(words).await;
    }
    let doctor = store.stdout(&["doctor"]).await;
    assert!(doctor.contains("no process has settled the hash secret yet"), "{doctor}");
    let upstream = TestUpstream::counting().await;
    let setup = store.to(&upstream).variable("SEMEL_HASH_SECRET", "0123456789abcdef");
    let _gateway = setup.start().await;
    store.semel(&["keys", "list"]).await.assert_stderr(&[1], &["secret"]);
}

async fn the_doctor_reports_a_missing_namespace(store: SharedStore) {
    store.stdout(&["migrate"]).await;
    let folder = tempfile::tempdir().unwrap();
    let doctor = run(folder.path(), &["doctor", "--store", &store.url]).await;
    assert_eq!(doctor.code, Some(1), "{doctor:#?}");
    assert!(doctor.stdout.contains("fix: name this service: --namespace"), "{doctor:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_of_another_table_is_refused() {
    let (first, upstream) = (SharedStore::arbiter(), TestUpstream::counting().await);
    let _gateway = first.to(&upstream).start().await;
    assert!(first.stdout(&["doctor"]).await.contains("front: its copies are of this table"));
    let second = SharedStore::postgres().behind(first.second());
    second.stdout(&["migrate"]).await;
    for words in [&["keys", "list"][..], &["purge"]] {
        second.semel(words).await.assert_stderr(&[1], &["another PostgreSQL table", "?prefix="]);
    }
    let doctor = second.semel(&["doctor"]).await;
    assert_eq!(doctor.code, Some(1), "{doctor:#?}");
    assert!(doctor.stdout.contains("fix: give each table a prefix"), "{doctor:#?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_reported() {
    let unreachable = Reserved::new();
    for url in ["postgres://u:hunter2@ADDRESS/d", "redis://:hunter2@ADDRESS"] {
        let url = url.replace("ADDRESS", &unreachable.address().to_string());
        assert_refused(&url, &["cannot open", "127.0.0.1", "--store"]).await;
    }
}

#[tokio::test]
async fn tables_that_are_not_there_name_the_command() {
    assert_refused(&SharedStore::postgres().url, &["semel migrate"]).await;
}

#[tokio::test]
async fn a_schema_that_is_no_name_is_refused() {
    let setup = Setup::new();
    let url = "postgres://u@h/d?schema=a%20b";
    let ended = run(setup.folder(), &["keys", "list", "--store", url]).await;
    ended.assert_stderr(&[2], &["--store", "schema"]);
}

/// With roles that have fewer and fewer rights.
#[tokio::test]
async fn what_a_postgres_server_refuses_names_the_fix() {
    let server = Running::start(&POSTGRES).unwrap();
    let sql = |statement: &str| server.sql(statement).unwrap();
    for role in ["app LOGIN PASSWORD 'right'", "reader LOGIN", "lax LOGIN"] {
        sql(&format!("CREATE ROLE {role}"));
    }
    let rules = "host all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(sql("SHOW hba_file").trim(), rules).unwrap();
    sql("SELECT pg_reload_conf()");
    sql("ALTER ROLE reader SET default_transaction_read_only = on");
    sql("ALTER ROLE lax SET synchronous_commit = off");
    let url = |user: &str| server.url().replace("postgres@", &format!("{user}@"));
    assert_refused(&url("app:hunter2"), &["password"]).await;
    assert_refused(&url("reader"), &["primary"]).await;
    assert_refused(&url("lax"), &["semel migrate"]).await;

    let folder = tempfile::tempdir().unwrap();
    let semel = async |words: &[&str], user: &str| {
        run(folder.path(), &[words, &["--namespace", "n", "--store", &url(user)]].concat()).await
    };
    semel(&["migrate"], "lax").await.assert_stderr(&[1], &["permission denied", "grant"]);
    assert_eq!(semel(&["migrate"], "postgres").await.code, Some(0));
    let doctor = semel(&["doctor"], "lax").await;
    for word in ["synchronous_commit", "warning", "BAD", "fix: grant the role"] {
        assert!(doctor.stdout.contains(word), "{word}: {doctor:#?}");
    }
}

#[tokio::test]
async fn what_a_redis_server_refuses_names_the_fix() {
    let server = Running::start(&REDIS).unwrap();
    server.ask(&["ACL", "SETUSER", "app", "on", ">right", "~*", "&*", "+@all"]).unwrap();
    let wrong = server.url().replace("redis://", "redis://app:hunter2@");
    assert_refused(&wrong, &["password"]).await;
    let replica = ["--replicaof", "127.0.0.1", &server.port().to_string()].map(str::to_owned);
    let replica = Running::start(&REDIS.args(replica)).unwrap();
    assert_refused(replica.url(), &["replica", "primary"]).await;
    let evicting = Running::start(&REDIS.args(["--maxmemory-policy", "allkeys-lru"])).unwrap();
    assert_refused(evicting.url(), &["evicts keys", "maxmemory-policy noeviction"]).await;
}
