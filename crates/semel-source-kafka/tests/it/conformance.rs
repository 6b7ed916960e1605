//! The source conformance suite, on real brokers, with both group protocols.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_conformance::sources::{Broker, SourceAbility, SourceFixture};
use semel_consumer::{Message, Source};
use semel_servers::{KAFKA, Running};
use tokio::{sync::Mutex, task::block_in_place};

use crate::common::{CLASSIC, KIP_848, PARTITIONS, TestTopic, shared};

/// A topic and a group of its own. A broker of its own, too, if the promise restarts it.
struct KafkaFixture {
    topic: TestTopic,
    server: Option<Mutex<Running>>,
}

impl KafkaFixture {
    async fn new(needed: Broker, options: &'static str) -> Self {
        let server = match needed {
            Broker::Shared => None,
            Broker::Own => Some(Running::start(&KAFKA).unwrap()),
        };
        let brokers = server.as_ref().map_or_else(shared, |it| format!("127.0.0.1:{}", it.port()));
        let mut topic = TestTopic::on(&brokers, PARTITIONS, 1).await;
        topic.options = options;
        Self { topic, server: server.map(Mutex::new) }
    }
}

#[async_trait]
impl SourceFixture for KafkaFixture {
    async fn publish(&self, message: Message) {
        self.topic.publish(&message).await;
    }

    async fn open(&self) -> Arc<dyn Source> {
        Arc::new(self.topic.source().await)
    }

    async fn restart_broker(&self) {
        let mut server = self.server.as_ref().expect("a server of its own").lock().await;
        block_in_place(|| {
            server.kill().unwrap();
            server.restart().unwrap();
        });
    }

    fn unsupported(&self) -> &[SourceAbility] {
        // Kafka knows one offset for each partition, and nothing of single records.
        &[SourceAbility::Deadlines, SourceAbility::CountsDeliveries]
    }

    fn ack_deadline(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn patience(&self) -> Duration {
        crate::common::PATIENCE
    }

    fn events(&self) -> usize {
        2_000
    }
}

/// The members of the group share the partitions among themselves.
mod classic {
    use super::*;

    async fn kafka(needed: Broker) -> KafkaFixture {
        KafkaFixture::new(needed, CLASSIC).await
    }

    semel_conformance::source_tests!(kafka);
}

/// The broker shares the partitions.
mod consumer {
    use super::*;

    async fn kafka(needed: Broker) -> KafkaFixture {
        KafkaFixture::new(needed, KIP_848).await
    }

    semel_conformance::source_tests!(kafka);
}
