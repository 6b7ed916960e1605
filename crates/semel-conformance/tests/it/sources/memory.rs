//! The source in memory keeps every promise of a source, and a consumer on it every promise of a consumer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_conformance::sources::{ALL, Broker, SourceAbility, SourceFixture};
use semel_consumer::{
    Message, Source,
    memory::{MemoryFaults, MemorySource},
};

pub(super) const ACK_DEADLINE: Duration = Duration::from_millis(500);

pub(super) struct Memory(pub(super) MemorySource);

impl Memory {
    pub(super) fn new() -> Self {
        Self(MemorySource::with_ack_deadline(ACK_DEADLINE))
    }

    pub(super) fn without_deadlines() -> Self {
        Self(MemorySource::without_ack_deadline())
    }
}

#[async_trait]
impl SourceFixture for Memory {
    async fn publish(&self, message: Message) {
        self.0.publish(message);
    }

    async fn open(&self) -> Arc<dyn Source> {
        Arc::new(self.0.clone())
    }

    async fn restart_broker(&self) {
        self.0.inject(MemoryFaults { is_down: true, ..MemoryFaults::NONE });
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.0.take_back();
        self.0.inject(MemoryFaults::NONE);
    }

    fn unsupported(&self) -> &[SourceAbility] {
        match self.0.info().ack_deadline {
            Some(_) => &[],
            None => &[SourceAbility::Deadlines],
        }
    }

    fn ack_deadline(&self) -> Duration {
        ACK_DEADLINE
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn events(&self) -> usize {
        match self.0.info().ack_deadline {
            Some(_) => 50_000,
            None => 5_000,
        }
    }
}

async fn memory(_: Broker) -> Memory {
    Memory::new()
}

semel_conformance::source_tests!(memory);

#[test]
fn the_list_names_every_promise() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sources");
    let files =
        ["promises", "consumer"].map(|part| std::fs::read_dir(format!("{folder}/{part}")).unwrap());
    let texts = files
        .into_iter()
        .flatten()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let written: usize =
        texts.map(|text| text.matches("\npub(in crate::sources) async fn ").count()).sum();
    assert_eq!(ALL.len(), written);
}
