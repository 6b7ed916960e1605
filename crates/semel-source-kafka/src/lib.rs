//! Apache Kafka for semel's event consumers: a source of messages, dead letters in a topic, and a publisher.
//!
//! ```no_run
//! use semel_consumer::{Consumer, Event, EventContext};
//! use semel_core::{MemoryStore, WorkError};
//! use semel_source_kafka::{KafkaDeadLetters, KafkaSource};
//!
//! #[derive(serde::Deserialize)]
//! struct OrderPlaced {
//!     order: String,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let report = Consumer::builder(KafkaSource::connect("kafka://localhost:9092/orders?group=billing").await?)
//!     .name("billing")
//!     .store(MemoryStore::new())?
//!     .dead_letters(KafkaDeadLetters::connect("kafka://localhost:9092/dead-letters?create=true").await?)
//!     .handler(|event: Event<OrderPlaced>, context: EventContext| async move {
//!         println!("invoice for {} with key {}", event.data.order, context.downstream_key());
//!         Ok::<_, WorkError>(())
//!     })
//!     .build()?
//!     .run()
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! # The source
//!
//! [`KafkaSource`] is a member of a consumer group. Kafka knows one number for each partition: the **committed offset**,
//! where the group goes on after a restart. A record is done when its outcome is durable or its dead letter is published.
//! The committed offset is never beyond a record that is not done.
//!
//! | consumer | source |
//! |---|---|
//! | acknowledge, or reject: the message is a dead letter | the record is done; the committed offset follows within a second |
//! | deliver again, after a delay | the source keeps the record, and hands it over again |
//! | extend the deadline | nothing: Kafka has none |
//!
//! - **A window** bounds how far a partition may be ahead of its committed offset
//!   ([`KafkaSourceBuilder::window`]). One record that is tried again and again does not hold up the others until
//!   it is full; then the partition is paused.
//! - **In a rebalance**, a partition that is revoked waits for its running handlers, for a
//!   bounded time ([`KafkaSourceBuilder::drain`]), and then commits. Settling a message after that changes nothing: the
//!   next owner of the partition gets it again, as a duplicate.
//! - **Deliveries are not counted** by Kafka, but here. `Message::deliveries` is `None` for the first delivery of a record
//!   that a process which has died may have been handed; later deliveries of it are at least as many as are counted.
//! - **The driver** (librdkafka) is polled on a thread of its own, which also closes it.
//! - **Replies** go to the topic in the header `Semel-Reply-To`, `Reply-To` or `kafka_replyTopic`.
//! - **Keys** that are no UTF-8 have an ordering key like `hex:ff00`. The value of a header that is null is empty.
//!
//! # Dead letters
//!
//! [`KafkaDeadLetters`] keeps them in a topic. [`KafkaPublisher`] publishes their messages again.

mod assignment;
mod check;
mod client;
mod commit_thread;
mod config;
mod dead_letters;
mod error;
mod examine;
mod fetch_queue;
mod message;
mod offsets;
mod partition;
mod poll_thread;
mod producer;
mod publisher;
mod reply;
mod settlement;
mod source;
mod topic;
mod url;

pub use self::{
    config::{GroupProtocol, KafkaSourceBuilder, OffsetReset},
    dead_letters::{KafkaDeadLetters, KafkaDeadLettersBuilder},
    message::OrderingKey,
    publisher::KafkaPublisher,
    source::KafkaSource,
};
