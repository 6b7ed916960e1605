//! Settles one record. Kafka knows only one number for each partition, the committed offset, so a settlement changes
//! what the source remembers, and the committed offset follows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use semel_consumer::Settlement;
use semel_core::Result;

use crate::{
    error,
    fetch_queue::{FetchQueue, FetchedRecord},
};

/// When a record is received again whose delivery was dropped.
const DROPPED: Duration = Duration::from_secs(1);

pub(crate) struct KafkaSettlement {
    queue: Arc<FetchQueue>,
    record: FetchedRecord,
    is_settled: AtomicBool,
}

impl KafkaSettlement {
    pub(crate) fn new(queue: Arc<FetchQueue>, record: FetchedRecord) -> Self {
        Self { queue, record, is_settled: AtomicBool::new(false) }
    }

    /// True for the first settlement.
    fn settle(&self) -> bool {
        !self.is_settled.swap(true, SeqCst)
    }
}

#[async_trait]
impl Settlement for KafkaSettlement {
    /// The record is done. Its offset is committed within a second, once all earlier records are done.
    async fn ack(&self) -> Result<()> {
        if !self.settle() || self.record.partition.finish(self.record.offset) {
            return Ok(());
        }
        Err(error::revoked(&self.record.message.position))
    }

    /// Kafka cannot deliver a record again while its consumer lives: the source keeps it.
    async fn nack(&self, delay: Duration) -> Result<()> {
        if self.settle() {
            self.queue.give_back(self.record.clone(), delay);
        }
        Ok(())
    }

    async fn reject(&self, _: &str) -> Result<()> {
        self.ack().await
    }

    /// Kafka has no deadline for a record.
    async fn extend(&self) -> Result<()> {
        Ok(())
    }
}

impl Drop for KafkaSettlement {
    fn drop(&mut self) {
        if self.settle() {
            self.queue.give_back(self.record.clone(), DROPPED);
        }
    }
}
