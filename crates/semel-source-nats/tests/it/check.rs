//! What the start of a consumer reports about the broker's settings.

use std::time::Duration;

use semel_consumer::{ConsumerPlan, Source};
use semel_core::{Finding, Level};
use serde_json::{Value, json};

use crate::common::Broker;

async fn findings(consumer: Value) -> Vec<Finding> {
    let source = Broker::with_consumer(consumer).await.source().await;
    let lease = Duration::from_secs(30);
    let plan = ConsumerPlan { concurrency: 8, max_in_flight: 16, max_attempts: Some(5), lease };
    source.check(&plan).await.unwrap()
}

#[tokio::test]
async fn a_consumer_as_the_source_makes_it_is_fit() {
    let findings = findings(json!({})).await;
    assert!(findings.iter().all(|finding| finding.level == Level::Good), "{findings:?}");
}

#[tokio::test]
async fn settings_that_lose_messages_are_bad_and_name_the_fix() {
    for (what, change) in [
        ("ack_policy none", json!({ "ack_policy": "none", "ack_wait": 0 })),
        ("ack_policy all", json!({ "ack_policy": "all" })),
        ("max_deliver 5", json!({ "max_deliver": 5 })),
        ("headers_only", json!({ "headers_only": true })),
    ] {
        let findings = findings(change).await;
        let found = findings.iter().find(|finding| finding.what.contains(what)).unwrap();
        assert_eq!(found.level, Level::Bad, "{found:?}");
        assert!(found.fix.as_ref().unwrap().contains("nats consumer"), "{found:?}");
    }
}

#[tokio::test]
async fn settings_that_hurt_are_warnings() {
    for (what, change) in [
        ("max_deliver 50", json!({ "max_deliver": 50 })),
        ("max_ack_pending 3", json!({ "max_ack_pending": 3 })),
        ("ack_wait 500ms", json!({ "ack_wait": 500_000_000 })),
        ("unused for 60s", json!({ "inactive_threshold": 60_000_000_000_u64 })),
        ("mem_storage", json!({ "mem_storage": true })),
    ] {
        let findings = findings(change).await;
        let found = findings.iter().find(|finding| finding.what.contains(what));
        assert_eq!(found.map(|found| found.level), Some(Level::Warning), "{what}: {findings:?}");
    }
}

#[tokio::test]
async fn deadline_and_redelivery_window_are_those_of_the_broker() {
    let broker = Broker::with_stream(json!({ "max_age": 3_600_000_000_000_u64 })).await;
    let backoff = json!([2_000_000_000_u64, 9_000_000_000_u64]);
    broker.make_consumer("c", json!({ "backoff": backoff, "max_deliver": 10 })).await;
    let info = broker.source().await.info();
    assert_eq!(info.ack_deadline, Some(Duration::from_secs(2)));
    assert_eq!(info.redelivery_window, Some(Duration::from_secs(3600)));
    assert_eq!(
        Broker::with_consumer(json!({})).await.source().await.info().redelivery_window,
        None
    );
}
