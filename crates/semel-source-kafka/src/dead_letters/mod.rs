//! Dead letters in a Kafka topic: a record for each letter, and one for each removal.

mod config;
mod read;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use semel_consumer::dead_letter::{DeadLetter, DeadLetterQueue, DeadLetterSink};
use semel_core::{Error, Finding, Result};

pub use self::config::KafkaDeadLettersBuilder;
use self::{
    config::DeadLetterSettings,
    read::{LetterLog, no_letter_after, removal},
};
use crate::{
    error,
    poll_thread::blocking,
    producer::{NewRecord, Producer},
    topic::{self, TopicSettings},
};

/// Settings of a topic that is created. Without a limit of time, and with room for letters that are larger than the
/// messages of a usual topic: their headers are longer.
const NEW_TOPIC: [(&str, &str); 3] =
    [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("max.message.bytes", "10485760")];

/// Dead letters in a Kafka topic.
///
/// A letter is the message itself, with its payload, its headers, and headers that begin with `Semel-Dead-Letter-`. The
/// key of the record is the id of the letter. Reading letters reads the whole topic once; what was read is kept in
/// memory.
#[derive(Clone)]
pub struct KafkaDeadLetters {
    settings: DeadLetterSettings,
    producer: Producer,
    log: Arc<Mutex<LetterLog>>,
}

impl KafkaDeadLetters {
    /// Connects to `kafka://[USER:PASSWORD@]HOST[:PORT]/TOPIC`.
    ///
    /// # Errors
    ///
    /// As [`KafkaDeadLettersBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings that a URL does not have, or that override it.
    pub fn builder(url: &str) -> KafkaDeadLettersBuilder {
        KafkaDeadLettersBuilder::new(url)
    }

    async fn open(settings: DeadLetterSettings) -> Result<Self> {
        let DeadLetterSettings { cluster, topic, create, replicas } = &settings;
        if *create {
            topic::create(cluster, topic, *replicas, &NEW_TOPIC).await?;
        }
        let producer = Producer::new(cluster)?;
        let letters = Self { settings, producer, log: Arc::default() };
        letters.check().await?;
        Ok(letters)
    }

    async fn examine(settings: &DeadLetterSettings) -> Result<Vec<Finding>> {
        let topic = &settings.topic;
        match existing(settings).await? {
            Some(found) => Ok(findings(&found)),
            None if settings.create => {
                let what = format!("topic {topic} does not exist yet; the first start creates it");
                Ok(vec![Finding::good(what)])
            }
            None => Err(no_topic(topic)),
        }
    }

    /// Reads on to the end of the topic, and returns what `look` finds in the letters.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&LetterLog) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (log, settings) = (self.log.clone(), self.settings.clone());
        blocking(move || {
            let mut log = log.lock();
            log.read_on(&settings.cluster, &settings.topic)?;
            look(&log)
        })
        .await
    }
}

#[async_trait]
impl DeadLetterSink for KafkaDeadLetters {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        let message = letter.to_message();
        let record = NewRecord {
            topic: &self.settings.topic,
            key: Some(letter.id.as_bytes()),
            // The letter of a tombstone has an empty payload: a record without one removes a letter.
            payload: Some(&message.body),
            headers: &message.headers,
        };
        self.producer.produce(record).await
    }

    /// The topic exists, and keeps all of its records.
    async fn check(&self) -> Result<()> {
        match existing(&self.settings).await? {
            Some(_) => Ok(()),
            None => Err(no_topic(&self.settings.topic)),
        }
    }

    fn name(&self) -> String {
        format!("kafka {}", self.settings.topic)
    }
}

#[async_trait]
impl DeadLetterQueue for KafkaDeadLetters {
    /// Records that are no letters are left out.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>> {
        let after = after.map(str::to_owned);
        self.read(move |log| {
            let letters = log.letters();
            let start = match after {
                None => 0,
                Some(after) => {
                    let position = letters.iter().position(|letter| letter.id == after);
                    1 + position.ok_or_else(|| no_letter_after(&after))?
                }
            };
            Ok(letters.into_iter().skip(start).take(limit).cloned().collect())
        })
        .await
    }

    async fn get(&self, id: &str) -> Result<Option<DeadLetter>> {
        let id = id.to_owned();
        self.read(move |log| Ok(log.get(&id).cloned())).await
    }

    /// Publishes a record that removes this letter, and no later one with its id.
    async fn remove(&self, letter: &DeadLetter) -> Result<bool> {
        let Some(kept) = self.get(&letter.id).await? else { return Ok(false) };
        if !kept.is_copy_of(letter) {
            return Ok(false);
        }
        let record = NewRecord {
            topic: &self.settings.topic,
            key: Some(letter.id.as_bytes()),
            payload: None,
            headers: &removal(&kept),
        };
        self.producer.produce(record).await?;
        Ok(true)
    }
}

/// The settings of the topic; `None` if it does not exist. A topic that cannot keep letters is an error.
async fn existing(settings: &DeadLetterSettings) -> Result<Option<TopicSettings>> {
    let DeadLetterSettings { cluster, topic, .. } = settings;
    match topic::find(cluster, topic).await {
        Err(error) if error::is_missing(&error) => return Ok(None),
        found => found?,
    }
    let found = topic::settings_of(cluster, std::slice::from_ref(topic)).await?.into_iter().next();
    let found =
        found.unwrap_or_else(|| TopicSettings { name: topic.clone(), ..TopicSettings::default() });
    if found.is_compacted {
        return Err(Error::invalid(format!(
            "kafka: topic {topic}: cleanup.policy compact can lose a letter while an earlier one with its id is \
             removed; set cleanup.policy to delete"
        )));
    }
    Ok(Some(found))
}

/// What a topic with these settings may lose.
fn findings(found: &TopicSettings) -> Vec<Finding> {
    let TopicSettings { name, retention, retention_bytes, is_known, .. } = found;
    let alter = |setting: &str| {
        format!(
            "look at the letters before, or keep them: kafka-configs --alter --entity-type topics --entity-name {name} \
             --add-config {setting}=-1"
        )
    };
    let mut findings = Vec::new();
    if !is_known {
        findings.push(Finding::warning(
            format!("topic {name}: this user may not read its settings, so it is not known how long letters are kept"),
            format!("allow DescribeConfigs on topic {name}"),
        ));
    }
    if let Some(retention) = retention {
        let what = format!("topic {name} removes a letter after {retention:?} (retention.ms)");
        findings.push(Finding::warning(what, alter("retention.ms")));
    }
    if let Some(bytes) = retention_bytes {
        let what =
            format!("topic {name} removes old letters beyond {bytes} bytes (retention.bytes)");
        findings.push(Finding::warning(what, alter("retention.bytes")));
    }
    if findings.is_empty() {
        findings.push(Finding::good(format!("topic {name} keeps letters without a limit")));
    }
    findings
}

fn no_topic(topic: &str) -> Error {
    Error::invalid(format!(
        "kafka: there is no topic {topic} for dead letters; make it (kafka-topics --create --topic {topic} --config \
         retention.ms=-1), or ask for it with ?create=true"
    ))
}

impl fmt::Debug for KafkaDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaDeadLetters")
            .field("topic", &self.settings.topic)
            .finish_non_exhaustive()
    }
}
