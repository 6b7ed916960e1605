//! librdkafka's mock cluster, for errors that a healthy broker does not give. It keeps nothing on disk and checks no
//! ownership, so it stands beside the tests on real brokers, never instead of them.

use std::time::Duration;

use rdkafka::{
    mocking::{MockCluster, MockCoordinator},
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use semel_consumer::{Message, dead_letter::MessagePublisher};
use semel_core::ErrorKind;
use semel_source_kafka::KafkaPublisher;
use tokio::time::sleep;

use crate::{
    common::{PARTITIONS, TestTopic, until},
    load::{Ledger, publish},
};

const EVENTS: u32 = 300;

type Mock = MockCluster<'static, DefaultProducerContext>;

/// A topic of a mock cluster, in which a consumer works while `disturb` does something to the cluster.
async fn under(disturb: impl AsyncFnOnce(&Mock, &TestTopic, &Ledger)) {
    let cluster = MockCluster::new(3).unwrap();
    let mut topic = TestTopic::named(&cluster.bootstrap_servers());
    // A mock group gathers its first members for three seconds, which is longer than the short session of other tests.
    // It does not answer a request for the settings of topics.
    topic.options = "&heartbeat.interval.ms=100&session.timeout.ms=8000&redelivery-window=1h";
    cluster.create_topic(&topic.name, PARTITIONS, 3).unwrap();
    let mut ledger = Ledger::default();
    let watcher = ledger.watch(&topic);
    let records = publish(&topic, 0..EVENTS / 2).await;
    let consumer = ledger.start(&topic).await;
    until("some ran", async || ledger.ran() >= 20).await;
    disturb(&cluster, &topic, &ledger).await;
    let records = records + publish(&topic, EVENTS / 2..EVENTS).await;
    ledger.finish(&topic, EVENTS, records).await;
    consumer.stop().await;
    watcher.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_are_refused_are_repeated() {
    under(async |cluster, _, _| {
        let refusals = [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ];
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
    })
    .await;
}

/// The driver repeats a refused commit with its old offsets, while the partitions that are revoked are committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_repeated_takes_no_later_one_back() {
    under(async |cluster, topic, ledger| {
        let refusals = [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ];
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
        let second = ledger.start(topic).await;
        for _ in 0..20 {
            cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
            sleep(Duration::from_millis(200)).await;
        }
        second.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fetches_that_are_refused_are_repeated() {
    under(async |cluster, _, _| {
        let refusals = [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
        ];
        cluster.request_errors(RDKafkaApiKey::Fetch, &refusals);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_moves_loses_nothing() {
    under(async |cluster, topic, _| {
        for broker in [2, 3, 1] {
            cluster.coordinator(MockCoordinator::Group(topic.group.clone()), broker).unwrap();
            sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_go_down_one_after_another_lose_nothing() {
    under(async |cluster, _, _| {
        for broker in 1..=3 {
            cluster.broker_down(broker).unwrap();
            sleep(Duration::from_millis(500)).await;
            cluster.broker_up(broker).unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_the_group_has_forgotten_joins_again() {
    under(async |cluster, _, _| {
        let refusals = [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
        ];
        cluster.request_errors(RDKafkaApiKey::Heartbeat, &refusals);
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
    })
    .await;
}

/// An idempotent producer whose numbers do not fit those of the broker cannot send anything more.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_cannot_go_on_is_replaced() {
    let cluster = MockCluster::new(1).unwrap();
    let topic = TestTopic::named(&cluster.bootstrap_servers());
    cluster.create_topic(&topic.name, 1, 1).unwrap();
    let publisher = KafkaPublisher::connect(&topic.url()).await.unwrap();
    let message = Message::new(&*topic.name, "x");
    publisher.publish(&message).await.unwrap();
    let desynchronized = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER];
    cluster.request_errors(RDKafkaApiKey::Produce, &desynchronized);
    let error = publisher.publish(&message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    publisher.publish(&message).await.unwrap();
}
