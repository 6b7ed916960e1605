//! What cannot be connected to, and what goes away later.

use std::time::Duration;

use rdkafka::admin::AdminOptions;
use semel_consumer::{ConsumerPlan, Source};
use semel_core::{ErrorKind, Level};
use semel_source_kafka::KafkaSource;

use crate::common::{TestTopic, receive_one, shared, soon, unique};

const PLAN: ConsumerPlan = ConsumerPlan {
    concurrency: 64,
    max_in_flight: 128,
    max_attempts: Some(5),
    lease: Duration::from_secs(30),
};

async fn error_of(url: &str) -> semel_core::Error {
    soon(KafkaSource::connect(url)).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_is_named() {
    let name = unique("missing");
    let error = error_of(&format!("kafka://{}/{name}?group=g", shared())).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(&name) && error.to_string().contains("make it"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_do_not_answer_are_an_error_that_does_not_show_the_password() {
    // Nothing listens on port 1.
    let error = error_of("kafka://u:canary@127.0.0.1:1/t?group=g").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no broker answers"), "{error}");
    assert!(!format!("{error:?}").contains("canary"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_broker_that_has_none_is_named() {
    let error = error_of(&format!("kafka+tls://{}/t?group=g", shared())).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topics_retention_is_the_redelivery_window() {
    let topic = TestTopic::new().await;
    topic.create(&unique("x"), 1, 1, &[]).await;
    // Seven days of retention, and seven days for the records of one segment.
    let two_weeks = Duration::from_secs(14 * 24 * 3600);
    assert_eq!(topic.source().await.info().redelivery_window, Some(two_weeks));
    let hour = [("retention.ms", "3600000"), ("segment.ms", "600000")];
    for (settings, window) in [
        (&hour[..], Some(Duration::from_secs(3600 + 600))),
        (&[("retention.ms", "-1")], None),
        (&[("cleanup.policy", "compact")], None),
    ] {
        let name = unique("t");
        topic.create(&name, 1, 1, settings).await;
        let url = format!("kafka://{}/{name}?group=g", topic.brokers);
        let source = KafkaSource::connect(&url).await.unwrap();
        assert_eq!(source.info().redelivery_window, window, "{settings:?}");
        assert_eq!(source.info().name, format!("kafka {name}/g"));
        let findings = source.check(&PLAN).await.unwrap();
        let worst = findings.iter().map(|finding| finding.level).max();
        let wanted = if settings[0].1 == "compact" { Level::Warning } else { Level::Good };
        assert_eq!(worst, Some(wanted), "{findings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_source_reads_several_topics() {
    let (one, other) = (TestTopic::new().await, TestTopic::new().await);
    let url = format!("kafka://{}/{},{}?group={}", one.brokers, one.name, other.name, one.group);
    let source = KafkaSource::connect(&url).await.unwrap();
    one.publish_numbers(1..2).await;
    other.publish_numbers(2..3).await;
    let mut topics = Vec::new();
    for _ in 0..2 {
        let delivery = receive_one(&source).await;
        topics.push(delivery.message.topic.clone());
        delivery.ack().await.unwrap();
    }
    topics.sort_unstable();
    let mut wanted = [one.name, other.name];
    wanted.sort_unstable();
    assert_eq!(topics, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_is_reported() {
    let topic = TestTopic::new().await;
    topic.publish_numbers(0..1).await;
    let builder = topic.builder().setting("topic.metadata.refresh.interval.ms", "300");
    let source = builder.connect().await.unwrap();
    receive_one(&source).await.ack().await.unwrap();
    topic.admin().delete_topics(&[&topic.name], &AdminOptions::new()).await.unwrap();
    let error = soon(source.receive(1)).await.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    soon(source.close()).await.unwrap();
}
