//! Handles each `UserRegistered` event of a Kafka topic once: what the handler writes, and the row that says so, commit
//! together in PostgreSQL. Then the consumer group begins at the first record again, and nothing happens.
//!
//! ```text
//! DATABASE_URL=postgres://… KAFKA_URL=kafka://127.0.0.1:9092 \
//!     cargo run -p semel --features inbox-deadpool,source-kafka --example consume_kafka
//! ```

use std::{
    env,
    error::Error,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use deadpool_postgres::{Manager, Pool};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    error::KafkaResult,
};
use semel::{
    WorkError,
    consumer::{
        Consumer, ConsumerControl, Event, EventContext, Handler, Message,
        dead_letter::{DeadLetterQueue, MessagePublisher},
        transaction_fn,
    },
    inbox::{DeadpoolTx, PgInbox},
    source_kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource},
};
use serde::Deserialize;
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Deserialize)]
struct UserRegistered {
    user: String,
    email: String,
}

/// The first user is registered by two copies of one event, and the third one cannot be.
const EVENTS: [(&str, &str); 5] = [
    ("user-1", "ada@example.com"),
    ("user-2", "grace@example.com"),
    ("user-1", "ada@example.com"),
    ("user-3", "not an address"),
    ("user-4", "edsger@example.com"),
];
const PARTITIONS: i32 = 3;
/// Events that share a transaction, at most.
const BATCH: usize = 100;
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<()> {
    let (Ok(database), Ok(kafka)) = (env::var("DATABASE_URL"), env::var("KAFKA_URL")) else {
        println!("nothing to do: set DATABASE_URL to a PostgreSQL, and KAFKA_URL to a Kafka");
        return Ok(());
    };
    // Topics and a schema for this run, removed at the end.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let name = format!("semel_example_{now:x}_{}", std::process::id());
    let example = Example {
        pool: Pool::builder(Manager::new(database.parse()?, NoTls)).build()?,
        kafka,
        name,
    };
    example.create().await?;
    let ran = example.run().await;
    example.remove().await?;
    ran
}

struct Example {
    pool: Pool,
    kafka: String,
    /// The name of topic, group and schema.
    name: String,
}

impl Example {
    async fn run(&self) -> Result<()> {
        self.publish().await?;
        self.consume().await?;
        let first = self.compare().await?;
        println!("{} records: {first} profiles", EVENTS.len());
        assert_eq!(first, 3);

        // As `kafka-consumer-groups.sh --reset-offsets --to-earliest` does.
        self.with_group(|group, mut offsets| {
            offsets.set_all_offsets(Offset::Offset(0))?;
            group.commit(&offsets, CommitMode::Sync)
        })
        .await?;
        self.consume().await?;
        let second = self.compare().await?;
        println!("{} records again: still {second} profiles", EVENTS.len());
        assert_eq!(second, first);

        let letters = self.dead_letters().await?.list(None, 10).await?;
        for letter in &letters {
            println!("dead letter of {:?}: {}", letter.event_id, letter.class);
        }
        assert_eq!(letters.len(), 1);
        Ok(())
    }

    async fn publish(&self) -> Result<()> {
        let publisher = KafkaPublisher::connect(&self.kafka).await?;
        for (user, email) in EVENTS {
            let body = format!(r#"{{"user":"{user}","email":"{email}"}}"#);
            let event = Message::new(&self.name, body)
                .with_header("event_id", format!("registered-{user}"))
                .with_header("event_type", "UserRegistered")
                .with_record_key(user);
            publisher.publish(&event).await?;
        }
        Ok(())
    }

    /// Consumes until all records are done. A service would wait for a signal.
    async fn consume(&self) -> Result<()> {
        let inbox = PgInbox::builder(self.pool.clone()).schema(&self.name);
        let inbox = inbox.consumer("profiles").install(true).build().await?;
        let source = format!("{0}/{1}?group={1}", self.kafka, self.name);
        let consumer = Consumer::builder(KafkaSource::connect(&source).await?)
            .dead_letters(self.dead_letters().await?)
            .transactional_batch(inbox, self.handler(), BATCH)
            .build()?;
        let control = consumer.control();
        let (consumed, all) = tokio::join!(consumer.run(), self.until_all_are_committed(control));
        consumed?;
        all
    }

    fn handler(&self) -> impl Handler<DeadpoolTx> {
        let insert = format!("INSERT INTO {}.profiles VALUES ($1, $2, $3)", self.name);
        transaction_fn(move |tx: &mut DeadpoolTx, event: Event<UserRegistered>, _: EventContext| {
            let insert = insert.clone();
            Box::pin(async move {
                let id = event.message.header("event_id").unwrap_or_default();
                tx.execute(&insert, &[&id, &event.data.user, &event.data.email]).await?;
                if !event.data.email.contains('@') {
                    // Final: the insert is rolled back, and the message becomes a dead letter.
                    return Err(WorkError::failure("not_an_address", "it has no @"));
                }
                println!("{} is registered", event.data.user);
                Ok(())
            })
        })
    }

    /// Waits until the committed offsets of the group are at the end of the topic, and stops the consumer.
    async fn until_all_are_committed(&self, control: ConsumerControl) -> Result<()> {
        while !control.is_stopping() {
            let committed = self.with_group(|group, offsets| {
                let committed = group.committed_offsets(offsets, PATIENCE)?;
                let next = |offset| if let Offset::Offset(next) = offset { next } else { 0 };
                Ok(committed.elements().iter().map(|it| next(it.offset())).sum::<i64>())
            });
            match committed.await {
                Ok(committed) if committed < EVENTS.len() as i64 => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                ended => {
                    control.stop();
                    ended?;
                }
            }
        }
        Ok(())
    }

    /// Asserts that the profiles and the successes in the inbox are the same events, row by row. Returns their number.
    /// The inbox has `idempotency:` before an id that comes from the event.
    async fn compare(&self) -> Result<i64> {
        let rows = format!(
            "SELECT p.event_id, i.event_id FROM (SELECT 'idempotency:' || event_id AS event_id FROM {0}.profiles) p \
             FULL JOIN (SELECT event_id FROM {0}.processed_events WHERE NOT failed) i USING (event_id)",
            self.name
        );
        let rows = self.pool.get().await?.query(&rows, &[]).await?;
        for row in &rows {
            let (profile, recorded): (Option<&str>, Option<&str>) = (row.get(0), row.get(1));
            assert_eq!(profile, recorded);
        }
        Ok(i64::try_from(rows.len())?)
    }

    /// Runs `work` with a client of the group that is no member of it, and with all partitions of the topic. It has a
    /// thread that may be blocked.
    async fn with_group<T: Send + 'static>(
        &self,
        work: impl FnOnce(BaseConsumer, TopicPartitionList) -> KafkaResult<T> + Send + 'static,
    ) -> Result<T> {
        let group: BaseConsumer = self.client().set("group.id", &self.name).create()?;
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_range(&self.name, 0, PARTITIONS - 1);
        Ok(tokio::task::spawn_blocking(move || work(group, partitions)).await??)
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.kafka.trim_start_matches("kafka://"));
        config
    }

    fn dead_letters_topic(&self) -> String {
        format!("{}_dead", self.name)
    }

    async fn dead_letters(&self) -> Result<KafkaDeadLetters> {
        let url = format!("{}/{}?create=true", self.kafka, self.dead_letters_topic());
        Ok(KafkaDeadLetters::connect(&url).await?)
    }

    async fn create(&self) -> Result<()> {
        let topic = NewTopic::new(&self.name, PARTITIONS, TopicReplication::Fixed(1));
        let admin: AdminClient<DefaultClientContext> = self.client().create()?;
        for created in admin.create_topics([&topic], &AdminOptions::new()).await? {
            created.map_err(|(topic, why)| format!("cannot create topic {topic}: {why}"))?;
        }
        let tables =
            "CREATE SCHEMA $; CREATE TABLE $.profiles (event_id text, login text, email text)";
        Ok(self.pool.get().await?.batch_execute(&tables.replace('$', &self.name)).await?)
    }

    async fn remove(&self) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = self.client().create()?;
        let topics = [self.name.as_str(), &self.dead_letters_topic()];
        admin.delete_topics(&topics, &AdminOptions::new()).await?;
        let drop = format!("DROP SCHEMA {} CASCADE", self.name);
        Ok(self.pool.get().await?.batch_execute(&drop).await?)
    }
}
