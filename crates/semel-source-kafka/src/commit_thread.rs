//! The thread that commits offsets, and waits for the broker each time: only then it is known what is committed. The
//! driver reports the results of commits that nobody waits for only if it chose their time itself.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use rdkafka::consumer::Consumer;
use semel_core::Result;

use crate::{error, poll_thread::KafkaConsumer};

/// Pause after a commit that failed.
const PAUSE: Duration = Duration::from_millis(250);

/// A running thread. Dropping it waits for its end.
#[derive(Debug)]
pub(crate) struct CommitThread {
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CommitThread {
    pub(crate) fn start(consumer: &Arc<KafkaConsumer>) -> Result<Self> {
        // One request waits while another commit is on its way; more would commit nothing new.
        let (requests, requested) = sync_channel(1);
        let consumer = consumer.clone();
        let run = move || commit_when_requested(&consumer, &requested);
        let spawned = thread::Builder::new().name("semel-kafka-commit".to_owned()).spawn(run);
        let thread = spawned.map_err(error::no_thread)?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Commits soon what is stored by then.
    pub(crate) fn request(&self) {
        if let Some(requests) = &self.requests {
            // It is full: a commit is about to begin.
            let _ = requests.try_send(());
        }
    }
}

impl Drop for CommitThread {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic was logged when it happened.
            let _ = thread.join();
        }
    }
}

fn commit_when_requested(consumer: &Arc<KafkaConsumer>, requested: &Receiver<()>) {
    while requested.recv().is_ok() {
        if let Err(error) = consumer.context().commit_stored(consumer) {
            tracing::warn!("kafka: cannot commit offsets, trying again: {error}");
            sleep(PAUSE);
        }
    }
}
