//! Reads the letters of a topic: what it adds up to, record by record.
//!
//! A record with a letter replaces an earlier letter with the same id; both are in one partition, because the id is the
//! key. A record without a payload removes the letter that it names, and no later one with the same id.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Message as _},
};
use semel_consumer::dead_letter::DeadLetter;
use semel_core::{Error, ErrorKind, Header, Result};

use crate::{
    client::{Cluster, Reports},
    error,
    message::{OrderingKey, of_record},
    topic,
};

/// Names the letter that a record removes.
const REMOVES: &str = "Semel-Dead-Letter-Removes";
/// How long reading may take.
const READ: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// The driver wants a group, and nothing is committed for it.
const GROUP: &str = "semel-dead-letters";

/// The letters of a topic, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct LetterLog {
    letters: HashMap<String, Entry>,
    /// The last record of each partition that was read.
    last: HashMap<i32, RecordIdentity>,
    read: u64,
}

/// Distinguishes a record from the one that has its offset in a topic that was made again.
#[derive(Debug, PartialEq, Eq)]
struct RecordIdentity {
    offset: i64,
    timestamp: Option<i64>,
    key: Option<Vec<u8>>,
}

/// How a reading has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Complete,
    /// The topic is not the one that was read before.
    MadeAgain,
}

#[derive(Debug)]
struct Entry {
    letter: DeadLetter,
    partition: i32,
    offset: i64,
    /// Letters are listed in the order in which they were read.
    number: u64,
}

impl LetterLog {
    /// All letters, oldest first.
    pub(super) fn letters(&self) -> Vec<&DeadLetter> {
        let mut entries: Vec<_> = self.letters.values().collect();
        entries.sort_unstable_by_key(|entry| (entry.letter.last_at, entry.number));
        entries.into_iter().map(|entry| &entry.letter).collect()
    }

    pub(super) fn get(&self, id: &str) -> Option<&DeadLetter> {
        self.letters.get(id).map(|entry| &entry.letter)
    }

    /// Reads up to the end that the topic has now. Blocks.
    pub(super) fn read_on(&mut self, cluster: &Cluster, topic: &str) -> Result<()> {
        if self.read_known_topic(cluster, topic)? == Reading::MadeAgain {
            tracing::warn!("kafka: topic {topic} was made again, and all of its letters are read");
            *self = Self::default();
            self.read_known_topic(cluster, topic)?;
        }
        Ok(())
    }

    /// Begins with the last record that was read before: if it has changed, so has the topic.
    fn read_known_topic(&mut self, cluster: &Cluster, topic: &str) -> Result<Reading> {
        let reports = Reports::default();
        let subject = format!("topic {topic}");
        let explain = |failed: &KafkaError| reports.explain(&subject, failed);
        let mut config = cluster.client_config()?;
        config
            .set("group.id", GROUP)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("isolation.level", "read_committed")
            // Letters that are removed while they are read: the others are not to be left out.
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true");
        let created = config.create_with_context(reports.clone());
        let consumer: BaseConsumer<Reports> =
            created.map_err(|failed| error::about("the cluster", &failed))?;
        let deadline = Instant::now() + READ;
        let partitions = topic::partitions(&consumer, &reports, topic)?;
        let mut assigned = TopicPartitionList::new();
        for partition in &partitions {
            let watermarks = consumer.fetch_watermarks(topic, *partition, topic::REQUEST);
            let (low, high) = watermarks.map_err(|failed| explain(&failed))?;
            let last = self.last.get(partition).map(|last| last.offset);
            if last.is_some_and(|last| last >= high) {
                return Ok(Reading::MadeAgain);
            }
            self.letters.retain(|_, it| it.partition != *partition || it.offset >= low);
            let offset = Offset::Offset(last.unwrap_or(low).max(low));
            let added = assigned.add_partition_offset(topic, *partition, offset);
            added.map_err(|failed| explain(&failed))?;
        }
        consumer.assign(&assigned).map_err(|failed| explain(&failed))?;
        let mut unread = partitions;
        while !unread.is_empty() {
            if Instant::now() >= deadline {
                return Err(error::unavailable(format!(
                    "kafka: {subject}: the letters could not be read within {READ:?}; try again"
                )));
            }
            match consumer.poll(POLL) {
                None => {}
                Some(Ok(record)) => match self.last.get(&record.partition()) {
                    Some(last) if record.offset() > last.offset => self.add(&record),
                    Some(last) if *last == identity(&record) => {}
                    Some(_) => return Ok(Reading::MadeAgain),
                    None => self.add(&record),
                },
                Some(Err(KafkaError::PartitionEOF(ended))) => unread.retain(|it| *it != ended),
                Some(Err(failed)) => return Err(explain(&failed)),
            }
        }
        Ok(Reading::Complete)
    }

    fn add(&mut self, record: &BorrowedMessage<'_>) {
        let (partition, offset) = (record.partition(), record.offset());
        self.last.insert(partition, identity(record));
        self.read += 1;
        let message = of_record(record, topic_partition(record).as_str(), &OrderingKey::None);
        if message.is_tombstone {
            let id = record.key().and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default();
            let removed = message.header(REMOVES).unwrap_or_default();
            if self.get(id).is_some_and(|letter| version(letter) == removed) {
                self.letters.remove(id);
            }
            return;
        }
        match DeadLetter::from_message(&message) {
            Ok(letter) => {
                let entry = Entry { letter, partition, offset, number: self.read };
                self.letters.insert(entry.letter.id.clone(), entry);
            }
            Err(error) => {
                let position = &message.position;
                tracing::warn!(position, "kafka: not a readable dead letter: {error}");
            }
        }
    }
}

fn identity(record: &BorrowedMessage<'_>) -> RecordIdentity {
    RecordIdentity {
        offset: record.offset(),
        timestamp: record.timestamp().to_millis(),
        key: record.key().map(<[u8]>::to_vec),
    }
}

fn topic_partition(record: &BorrowedMessage<'_>) -> String {
    format!("{}/{}", record.topic(), record.partition())
}

/// The headers of the record that removes a letter.
pub(super) fn removal(letter: &DeadLetter) -> Vec<Header> {
    vec![Header { name: REMOVES.to_owned(), value: version(letter).into() }]
}

/// Tells a letter from a later one with the same id, see [`DeadLetter::is_copy_of`]. Read from the headers, because
/// those are what the topic keeps.
fn version(letter: &DeadLetter) -> String {
    let headers = letter.headers();
    let value = |name: &str| {
        let found = headers.iter().find(|header| header.name.ends_with(name));
        found.map(|it| String::from_utf8_lossy(&it.value).into_owned()).unwrap_or_default()
    };
    format!("{} {}", value("-Last-At"), value("-Attempts"))
}

/// The error for a letter after which a list was to go on.
pub(super) fn no_letter_after(after: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "kafka: there is no letter {after:?} to list after any more; list again from the start"
        ),
    )
}
