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
    /// The next offset of each partition.
    next: HashMap<i32, i64>,
    read: u64,
}

#[derive(Debug)]
struct Entry {
    letter: DeadLetter,
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
        let reports = Reports::default();
        let subject = format!("topic {topic}");
        let explain = |failed: &KafkaError| reports.explain(&subject, failed);
        let mut config = cluster.client_config()?;
        config
            .set("group.id", GROUP)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true");
        let created = config.create_with_context(reports.clone());
        let consumer: BaseConsumer<Reports> =
            created.map_err(|failed| error::about("the cluster", &failed))?;
        let deadline = Instant::now() + READ;
        let partitions = topic::partitions(&consumer, &reports, topic)?;
        let mut assigned = TopicPartitionList::new();
        for partition in &partitions {
            let offset =
                self.next.get(partition).map_or(Offset::Beginning, |it| Offset::Offset(*it));
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
                Some(Ok(record)) => self.add(&record),
                Some(Err(KafkaError::PartitionEOF(ended))) => unread.retain(|it| *it != ended),
                Some(Err(failed)) => return Err(explain(&failed)),
            }
        }
        Ok(())
    }

    fn add(&mut self, record: &BorrowedMessage<'_>) {
        self.next.insert(record.partition(), record.offset() + 1);
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
                let entry = Entry { number: self.read, letter };
                self.letters.insert(entry.letter.id.clone(), entry);
            }
            Err(error) => {
                let position = &message.position;
                tracing::warn!(position, "kafka: not a readable dead letter: {error}");
            }
        }
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
