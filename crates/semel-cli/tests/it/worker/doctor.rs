//! `semel doctor` on the source and the dead letters of a worker. Kafka has its tests in `doctor_kafka.rs`.

use crate::harness::{JetStream, TestUpstream, WorkerSetup};

/// Without a worker, the folder of the store does not exist yet.
async fn setup(stream: &JetStream) -> WorkerSetup {
    WorkerSetup::new(stream, &TestUpstream::counting().await)
}

#[tokio::test]
async fn the_source_and_the_dead_letters_are_examined_for_the_worker() {
    let stream = JetStream::new().await;
    let setup = setup(&stream).await;
    let ended = setup.doctor(&[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    for words in [
        "warning  not checked: there is no store in data\n         fix: the first start of a worker makes one; or name its folder",
        &format!(
            "source nats {}/c\n\nok       retention: outcomes are kept for 86400s",
            stream.stream
        ),
        "ok       ack_wait 60s",
        "dead letters\n\nok       dead-letters does not exist yet",
        "it works; see the warnings",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    assert_eq!(std::fs::read_dir(setup.folder()).unwrap().count(), 0, "nothing was created");
    let report = setup.flag("--lease", "10m").diagnosis(0).await;
    let source = report["source"].to_string();
    assert!(source.contains("then waits for its lease, 600s"), "{source}");
}

#[tokio::test]
async fn the_settings_may_be_in_the_file_and_in_variables() {
    let stream = JetStream::new().await;
    let file = format!("[worker]\nsource = '{}'\nconcurrency = 600\n", stream.url());
    let setup = WorkerSetup::bare().config(&file).variable("SEMEL_DEAD_LETTER", "drop");
    let report = setup.diagnosis(0).await;
    let source = report["source"].to_string();
    assert!(
        source.contains("max_ack_pending 1000") && source.contains("--max-pending=1200"),
        "{source}"
    );
    assert!(report["dead_letters"].to_string().contains("no copy is kept"), "{report}");
}

#[tokio::test]
async fn a_consumer_that_is_missing_is_bad_unless_the_worker_creates_it() {
    let stream = JetStream::new().await;
    let setup = setup(&stream).await;
    let missing = format!("{}/{}/new", stream.server(), stream.stream);
    for _ in 0..2 {
        let report = setup.clone().flag("--source", &missing).diagnosis(1).await;
        let found = &report["source"]["findings"][0];
        assert!(found["what"].as_str().unwrap().contains("no consumer new"), "{found}");
        assert!(found["fix"].as_str().unwrap().contains("?create=true"), "{found}");
        let created = setup.clone().flag("--source", &format!("{missing}?create=true"));
        let report = created.diagnosis(0).await;
        assert!(report["source"].to_string().contains("does not exist yet"), "{report}");
    }
    let letters = format!("{}/{}-DEAD", stream.server(), stream.stream);
    let setup = setup.without("--source").flag("--dead-letter", &letters);
    let ended = setup.doctor(&[]).await;
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stdout.contains("BAD      nats: there is no stream"), "{}", ended.stdout);
    assert!(ended.stdout.contains("the worker cannot keep the promise"), "{}", ended.stdout);
    let report = setup.flag("--dead-letter", &format!("{letters}?create=true")).diagnosis(0).await;
    assert!(report["dead_letters"].to_string().contains("does not exist yet"), "{report}");
}

/// Looking at the dead letters in a folder does not disturb the worker that has them open.
#[tokio::test]
async fn the_doctor_examines_a_worker_that_runs() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = WorkerSetup::new(&stream, &handler);
    let worker = setup.start().await;
    let report = setup.diagnosis(0).await;
    assert!(report["dead_letters"].to_string().contains("dead-letters is a folder"), "{report}");
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_wrong_setting_is_named_as_the_worker_names_it() {
    let stream = JetStream::new().await;
    for (flag, value, words) in [
        ("--source", "nats://u:canary@a/only", &["--source", "/STREAM/CONSUMER"][..]),
        ("--source", "nast://canary", &["--source", "did you mean nats:?"]),
        ("--dead-letter", "postgres://u:canary@db/a?table=DROP", &["--dead-letter", "table"]),
        ("--lease", "1ms", &["--lease", "20ms"]),
        ("--concurrency", "65537", &["--concurrency", "65536"]),
        ("--retention", "soon", &["--retention", "auto"]),
    ] {
        let ended = setup(&stream).await.flag(flag, value).doctor(&[]).await;
        ended.assert_stderr(&[2], words);
        assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
    }
}
