//! Produces records, and waits until all in-sync replicas have them.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rdkafka::{
    ClientConfig,
    message::{Header as KafkaHeader, OwnedHeaders},
    producer::{FutureProducer, FutureRecord, Producer as _},
};
use semel_core::{Header, Result};

use crate::{
    client::{Cluster, Reports},
    error,
    topic::drop_elsewhere,
};

/// How long a record may take. The driver tries again meanwhile.
const DELIVERY: Duration = Duration::from_secs(10);
/// How long a topic may be unknown. A new one is not known to all brokers at once.
const UNKNOWN_TOPIC: Duration = Duration::from_secs(5);
/// The driver's own limit of a message is no reason to refuse one: that of the topic is.
const MAX_BYTES: &str = "1000000000";

/// A record to produce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRecord<'a> {
    pub(crate) topic: &'a str,
    pub(crate) key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: &'a [Header],
}

/// An idempotent producer. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Producer(Arc<Inner>);

struct Inner {
    config: ClientConfig,
    producer: Mutex<Option<FutureProducer<Reports>>>,
    reports: Reports,
}

impl Producer {
    /// Does not connect: the driver does so when there is a record.
    pub(crate) fn new(cluster: &Cluster) -> Result<Self> {
        let mut config = cluster.client_config()?;
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", DELIVERY.as_millis().to_string())
            // A topic that does not exist is reported as that, and not as brokers that do not answer.
            .set("topic.metadata.propagation.max.ms", UNKNOWN_TOPIC.as_millis().to_string())
            .set("message.max.bytes", MAX_BYTES)
            // Records are few, and each is waited for.
            .set("linger.ms", "0");
        let reports = Reports::default();
        let producer = Mutex::new(Some(opened(&config, &reports)?));
        Ok(Self(Arc::new(Inner { config, producer, reports })))
    }

    /// Produces a record. Returns after the brokers have confirmed it.
    pub(crate) async fn produce(&self, record: NewRecord<'_>) -> Result<()> {
        let NewRecord { topic, key, payload, headers } = record;
        let Inner { config, producer, reports } = &*self.0;
        let used = match &mut *producer.lock() {
            Some(producer) => producer.clone(),
            none => none.insert(opened(config, reports)?).clone(),
        };
        let mut new = FutureRecord::<[u8], [u8]>::to(topic).headers(owned(headers));
        if let Some(key) = key {
            new = new.key(key);
        }
        if let Some(payload) = payload {
            new = new.payload(payload);
        }
        let sent = used.send(new, DELIVERY).await;
        match sent {
            Ok(_) => {
                reports.succeeded();
                Ok(())
            }
            Err((failed, _)) => {
                self.0.replace_if_fatal(used);
                Err(reports.explain(&format!("topic {topic}"), &failed))
            }
        }
    }
}

impl Inner {
    /// The driver sends nothing more with a producer whose numbers do not fit those of the brokers. The next record gets
    /// a new one.
    fn replace_if_fatal(&self, used: FutureProducer<Reports>) {
        let Some((code, reason)) = used.client().fatal_error() else { return };
        let fatal = {
            let mut producer = self.producer.lock();
            // Another call may have replaced it.
            let is_fatal = |it: &mut FutureProducer<_>| it.client().fatal_error().is_some();
            producer.take_if(is_fatal)
        };
        if fatal.is_some() {
            tracing::warn!(%code, "kafka: the producer cannot go on, and is replaced: {reason}");
        }
        drop_elsewhere((used, fatal));
    }
}

fn opened(config: &ClientConfig, reports: &Reports) -> Result<FutureProducer<Reports>> {
    let created = config.create_with_context(reports.clone());
    created.map_err(|error| error::about("the cluster", &error))
}

fn owned(headers: &[Header]) -> OwnedHeaders {
    headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |all, header| {
        all.insert(KafkaHeader { key: &header.name, value: Some(&header.value[..]) })
    })
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop_elsewhere(self.producer.get_mut().take());
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Producer")
    }
}
