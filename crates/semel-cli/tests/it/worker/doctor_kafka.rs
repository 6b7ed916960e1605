//! `semel doctor` on the source and the dead letters of a worker over Kafka.

use serde_json::Value;

use super::kafka::{dead, shared};
use crate::harness::{KafkaTopic, TestUpstream};

#[tokio::test]
async fn what_is_missing_is_reported_and_not_created() {
    let (topic, handler) = (KafkaTopic::new().await, TestUpstream::counting().await);
    let setup = shared(&topic, &handler);
    let report = setup.diagnosis(0).await;
    assert!(report["dead_letters"].to_string().contains("does not exist yet"), "{report}");
    let missing = topic.url_of(&format!("{}-missing", topic.name), "?group=g");
    let report = setup.flag("--source", &missing).diagnosis(1).await;
    assert_eq!((&report["worst"], &report["source"]["name"]), (&"BAD".into(), &Value::Null));
    let found = &report["source"]["findings"][0];
    assert!(found["what"].as_str().unwrap().contains("there is no topic"), "{found}");
    assert!(found["fix"].as_str().unwrap().contains("make it"), "{found}");
    assert!(!topic.exists(&dead(&topic)) && !topic.exists(&format!("{}-missing", topic.name)));
}

#[tokio::test]
async fn the_doctor_leaves_a_running_worker_its_partitions() {
    let (topic, handler) = (KafkaTopic::new().await, TestUpstream::counting().await);
    let setup = shared(&topic, &handler);
    let worker = setup.start().await;
    topic.publish("order-1").await;
    topic.until_settled().await;
    let (before, shared_at) = (topic.members(), worker.stderr().matches("partitions were").count());
    assert_eq!((before.0.as_str(), before.1.len()), ("Stable", 1), "{before:?}");

    let report = setup.diagnosis(0).await;
    assert_eq!(report["source"]["name"], format!("kafka {}/{}", topic.name, topic.group));
    let source = report["source"].to_string();
    for words in ["kept for up to 1209600s", "offset reset earliest", "committed offsets in 1 of 3"]
    {
        assert!(source.contains(words), "{words}: {source}");
    }
    assert!(source.contains("retention: outcomes are kept for 1330560s"), "auto: {source}");
    assert!(report["dead_letters"].to_string().contains("without a limit"), "{report}");

    assert_eq!(topic.members(), before);
    topic.publish("order-2").await;
    topic.until_settled().await;
    assert_eq!(topic.members(), before);
    assert_eq!(
        worker.stderr().matches("partitions were").count(),
        shared_at,
        "{}",
        worker.stderr()
    );
    assert_eq!(handler.count(), 2);
    worker.stop().await;
}

#[tokio::test]
async fn the_doctor_compares_the_topics_with_the_settings_of_the_worker() {
    let topic =
        KafkaTopic::with(&[("retention.ms", "3600000"), ("retention.bytes", "1000000")]).await;
    topic.create(&dead(&topic), &[("retention.ms", "60000")]).await;
    let handler = TestUpstream::counting().await;
    let options = format!("?group={}&window=10&offset-reset=latest", topic.group);
    let setup = shared(&topic, &handler).flag("--source", &topic.url_of(&topic.name, &options));
    let setup = setup.flag("--lease", "10m").flag("--concurrency", "20");
    let ended = setup.doctor(&[]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    for words in [
        "retention.bytes 1000000",
        "offset reset latest",
        "session.timeout.ms",
        "the 40 places of messages in flight",
        "no committed offsets",
        "removes a letter after 60s",
        "--add-config retention.ms=-1",
        "it works; see the warnings",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let short = setup.clone().flag("--retention", "10m").diagnosis(1).await;
    assert_eq!(short["worst"], "BAD");
    let found = &short["source"]["findings"][0];
    assert!(found["fix"].as_str().unwrap().contains("--allow-short-retention"), "{found}");
    topic.create(&format!("{}-compact", topic.name), &[("cleanup.policy", "compact")]).await;
    let compact = topic.url_of(&format!("{}-compact", topic.name), "");
    let report = setup.flag("--dead-letter", &compact).diagnosis(1).await;
    assert!(report["dead_letters"].to_string().contains("cleanup.policy compact"), "{report}");
}
