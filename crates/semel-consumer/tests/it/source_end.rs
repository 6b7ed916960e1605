//! A source that ends with an error that no further call can change.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use async_trait::async_trait;
use semel_consumer::{
    Consumer, ConsumerPlan, Delivery, Message, Source, SourceInfo, dead_letter::MemoryDeadLetters,
    memory::MemorySource,
};
use semel_core::{Error, ErrorKind, Finding, MemoryStore, Outcome, Result};

use crate::fixture::{Scene, message};

/// Delivers once, and fails then with an error of this kind: once, or for ever if it is closed.
#[derive(Debug)]
struct FailingSource {
    inner: MemorySource,
    has_delivered: AtomicBool,
    has_failed: AtomicBool,
    kind: ErrorKind,
}

#[async_trait]
impl Source for FailingSource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        if !self.has_delivered.swap(true, SeqCst) {
            return self.inner.receive(1).await;
        }
        match self.kind {
            ErrorKind::Closed => Err(Error::new(self.kind, "the group refuses this member")),
            kind if !self.has_failed.swap(true, SeqCst) => Err(Error::new(kind, "try again")),
            _ => self.inner.receive(max).await,
        }
    }

    fn info(&self) -> SourceInfo {
        self.inner.info()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        self.inner.lag().await
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        self.inner.reply(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        self.inner.check(plan).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[tokio::test]
async fn a_source_that_has_ended_ends_the_consumer_with_its_error() {
    for kind in [ErrorKind::Closed, ErrorKind::Unavailable, ErrorKind::Invalid] {
        let scene = Scene::new(["a", "b"].map(message));
        let source = FailingSource {
            inner: scene.source.clone(),
            has_delivered: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            kind,
        };
        let consumer = Consumer::builder(source)
            .name("tests")
            .store(MemoryStore::new())
            .unwrap()
            .dead_letters(MemoryDeadLetters::new())
            .handler(scene.succeeds())
            .build()
            .unwrap();
        let ended = consumer.run().await;
        match kind {
            ErrorKind::Closed => {
                assert!(ended.unwrap_err().to_string().contains("refuses"));
                assert!(scene.source.open() > 0, "what was not delivered stays in the broker");
            }
            _ => {
                ended.unwrap();
                assert_eq!(scene.acks(), 2, "{kind:?}");
            }
        }
    }
}
