//! A worker that cannot start says why, and what to do.

use crate::harness::{JetStream, Reserved, TestUpstream, WorkerSetup, run};

/// A worker that has all that it needs, but nothing to connect to.
fn offline() -> WorkerSetup {
    WorkerSetup::bare()
        .flag("--source", "nats://127.0.0.1:9/ORDERS/billing")
        .flag("--handler", "http://127.0.0.1:9")
        .flag("--dead-letter", "drop")
        .flag("--store", "memory:")
}

#[tokio::test]
async fn all_missing_settings_are_named_at_once() {
    let ended = WorkerSetup::bare().run().await;
    ended.assert_stderr(
        &[2],
        &["--source nats://", "--handler http://", "--dead-letter file:", "SEMEL_SOURCE"],
    );
}

#[tokio::test]
async fn a_wrong_setting_is_named_with_its_place_and_the_fix() {
    for (flag, value, words) in [
        (
            "--source",
            "pulsar://a:1/t",
            &["--source", "no known scheme", "nats://HOST:PORT/STREAM/CONSUMER"][..],
        ),
        ("--source", "nast://a/b/c", &["--source", "did you mean nats:?"]),
        ("--source", "nats://u:canary@a/only", &["--source", "/STREAM/CONSUMER"]),
        ("--handler", "https://a", &["--handler", "TLS", "not in this release"]),
        ("--handler", "a:80", &["--handler", "http://HOST:PORT/PATH"]),
        ("--handler", "http://u:canary@a", &["--handler", "password"]),
        ("--dead-letter", "fiel:x", &["--dead-letter", "did you mean file:?"]),
        ("--dead-letter", "file:", &["--dead-letter", "file:PATH"]),
        ("--dead-letter", "postgres://u:canary@db/a?table=DROP", &["--dead-letter", "table"]),
        ("--lease", "1ms", &["--lease", "20ms"]),
        ("--retention", "soon", &["--retention", "auto"]),
        ("--retention", "0s", &["--retention"]),
        ("--concurrency", "0", &["--concurrency", "from 1"]),
        ("--concurrency", "65537", &["--concurrency", "from 1 to 65536"]),
        ("--max-body", "0", &["--max-body: is 0", "at least 1"]),
        ("--type", "a,,b", &["--type: has an empty type"]),
        ("--permanent-status", "400,", &["--permanent-status", "is empty", "422"]),
        ("--max-attempts", "none", &["--max-attempts"]),
        ("--permanent-status", "200", &["--permanent-status", "400 to 599"]),
        ("--handler-timeout", "0s", &["--handler-timeout", "1ms"]),
        ("--handler-timeout", "30d", &["--handler-timeout: is 30d", "to 6d"]),
        ("--order", "some", &["--order", "strict", "relaxed"]),
        ("--mode", "observe", &["--mode", "record", "track-ids"]),
        ("--on-mismatch", "x", &["--on-mismatch", "dead-letter", "skip", "ignore"]),
        ("--unknown-type", "x", &["--unknown-type", "dead-letter", "skip", "stop"]),
        ("--admin", "0.0.0.0:1", &["--admin", "SEMEL_ADMIN_TOKEN"]),
        ("--store", "postgres://app@db/app", &["no namespace", "--namespace"]),
        ("--name", "", &["--name"]),
    ] {
        let ended = offline().flag(flag, value).run().await;
        ended.assert_stderr(&[2], words);
        assert!(!ended.stderr.contains("canary"), "{flag}: {}", ended.stderr);
    }
}

#[cfg(not(feature = "kafka"))]
#[tokio::test]
async fn a_broker_that_is_not_in_this_build_is_named_with_the_feature() {
    let words = ["Kafka is not in this build", "--features full"];
    for flag in ["--source", "--dead-letter"] {
        let ended = offline().flag(flag, "kafka://u:canary@a/t?group=g").run().await;
        ended.assert_stderr(&[2], &[&words[..], &[flag]].concat());
        assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
    }
    let setup = offline().without("--store");
    let ended = setup.flag("--dead-letter", "kafka://a/t").dead_letters(&["list"]).await;
    ended.assert_stderr(&[1], &words);
}

#[tokio::test]
async fn dead_letters_in_the_folder_of_the_store_are_refused() {
    for folder in ["file:semel-data", "file:semel-data/dead", "file:."] {
        let ended = offline().without("--store").flag("--dead-letter", folder).run().await;
        ended.assert_stderr(
            &[2],
            &["--dead-letter: its folder", "semel-data; name a folder beside"],
        );
    }
}

#[tokio::test]
async fn a_wrong_field_of_the_file_is_named_with_its_line() {
    let setup =
        WorkerSetup::bare().config("[worker]\nsource = 'x'\nhandlr = 'http://a'\nlease = 5\n");
    let words = [
        "semel.toml:2:1: worker.source: begins with no known scheme",
        "semel.toml:3:1: worker.handlr: unknown field; did you mean handler?",
        "semel.toml:4",
    ];
    setup.run().await.assert_stderr(&[2], &words);
}

#[tokio::test]
async fn a_broker_that_cannot_be_reached_is_named() {
    offline().run().await.assert_stderr(&[1], &["nats", "(--source)"]);
}

#[tokio::test]
async fn a_missing_stream_or_consumer_is_named() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler);
    let missing = format!("{}/NO_SUCH_STREAM/c", stream.server());
    let ended = setup.clone().flag("--source", &missing).run().await;
    ended.assert_stderr(&[1], &["NO_SUCH_STREAM", "(--source)"]);
    let missing = format!("{}/{}/no-such-consumer", stream.server(), stream.stream);
    let ended = setup.flag("--source", &missing).run().await;
    ended.assert_stderr(&[1], &["no-such-consumer", "create", "(--source)"]);
}

#[tokio::test]
async fn dead_letters_that_cannot_be_kept_are_named_before_the_first_message() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler);
    stream.publish("order-1").await;
    let nothing = Reserved::new().address();
    let sink = format!("postgres://app:canary@{nothing}/app");
    let ended = setup.clone().flag("--dead-letter", &sink).run().await;
    ended.assert_stderr(&[1], &["dead letters", "make the dead-letter sink reachable"]);
    assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
    let sink = format!("{}/NO_SUCH_STREAM", stream.server());
    let ended = setup.clone().flag("--dead-letter", &sink).run().await;
    ended.assert_stderr(&[1], &["NO_SUCH_STREAM", "(--dead-letter)"]);
    std::fs::write(setup.folder().join("a-file"), "").unwrap();
    let ended = setup.flag("--dead-letter", "file:a-file").run().await;
    ended.assert_stderr(&[1], &["a-file", "(--dead-letter)"]);
    assert_eq!((handler.count(), stream.open().await), (0, 1), "nothing was consumed");
}

/// The stream keeps messages for an hour.
#[tokio::test]
async fn a_retention_that_ends_before_the_source_forgets_is_refused() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler).flag("--retention", "10m");
    setup.run().await.assert_stderr(&[1], &["retention", "--allow-short-retention", "use auto"]);
    let worker = setup.flag("--allow-short-retention=true", "--log=warn").begin();
    crate::harness::until("it warns", async || worker.stderr().contains("runs again")).await;
}

#[tokio::test]
async fn the_help_has_every_flag() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(folder.path(), &["worker", "--help"]).await;
    assert_eq!(ended.code, Some(0));
    for flag in [
        "--source",
        "--handler",
        "--dead-letter",
        "--store",
        "--namespace",
        "--name",
        "--concurrency",
        "--max-attempts",
        "--handler-timeout",
        "--permanent-status",
        "--lease",
        "--retention",
        "--allow-short-retention",
        "--order",
        "--mode",
        "--on-lost-owner",
        "--on-mismatch",
        "--on-dead-letter",
        "--type",
        "--unknown-type",
        "--max-body",
        "--check-json",
        "--hash-secret-file",
        "--seal-keys",
        "--cache",
        "--admin",
        "--admin-token",
        "--log",
        "--log-format",
        "--config",
        "--demo",
    ] {
        let mut words = ended.stdout.split([' ', '\n', ',', '=', '[']);
        assert!(words.any(|word| word == flag), "{flag}: {}", ended.stdout);
    }
}
