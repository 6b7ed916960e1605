//! NATS JetStream for semel's event consumers: a source of messages, dead letters in a stream, and a publisher.
//!
//! ```no_run
//! use semel_consumer::{Consumer, Event, EventContext};
//! use semel_core::{MemoryStore, WorkError};
//! use semel_source_nats::{NatsDeadLetters, NatsSource};
//!
//! #[derive(serde::Deserialize)]
//! struct OrderPlaced {
//!     order: String,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let report = Consumer::builder(NatsSource::connect("nats://localhost:4222/ORDERS/billing").await?)
//!     .name("billing")
//!     .store(MemoryStore::new())?
//!     .dead_letters(NatsDeadLetters::connect("nats://localhost:4222/DEAD_LETTERS?create=true").await?)
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
//! [`NatsSource`] pulls from a durable consumer with explicit acknowledgement.
//!
//! | consumer | server |
//! |---|---|
//! | acknowledge | `+ACK`, which the server confirms ("double ack") |
//! | deliver again, after a delay | `-NAK {"delay":...}`, confirmed |
//! | reject: the message is a dead letter | `+TERM reason`, confirmed |
//! | extend the deadline | `+WPI` |
//!
//! - **No hidden buffer**: a request asks for no more messages than the consumer takes at that moment, and ends with
//!   the last message that is there.
//! - **A lost connection is opened again** by the driver. Requests are then sent again; what was not acknowledged comes
//!   again after the consumer's `ack_wait`.
//! - **Order**: JetStream promises none while several messages are in flight. semel keeps it for messages with the same
//!   [`OrderingKey`].
//! - **`max_deliver`** should be -1, since semel counts attempts itself. If it is limited, semel subscribes to the
//!   server's advisories and makes such a message a dead letter; but an advisory that is sent while no worker runs is
//!   lost. [`check`](semel_consumer::Source::check) reports a limit.
//! - **Replies** go to the subject in the header `Semel-Reply-To` or `Reply-To`, with the outcome as payload and the
//!   headers `Semel-Status` (`success` or `failure`), `Semel-Failure-Kind` and `Semel-In-Reply-To`. Subjects that begin
//!   with `$` are not replied to.
//!
//! The driver closes the connection when it reads a header that is not UTF-8, and opens another. The message comes
//! again after each deadline, between others, until `max_deliver` makes it a dead letter or an operator removes it
//! (`nats stream rmm`).
//!
//! # Dead letters
//!
//! [`NatsDeadLetters`] keeps them in a stream, one subject for each. [`NatsPublisher`] publishes their messages again.

mod ack_subject;
mod check;
mod config;
mod connection;
mod dead_letters;
mod error;
mod given_up;
mod headers;
mod jetstream;
mod message;
mod publisher;
mod pull;
mod receiver;
mod reply;
mod settlement;
mod source;
mod url;

pub use self::{
    config::NatsSourceBuilder,
    dead_letters::{NatsDeadLetters, NatsDeadLettersBuilder},
    message::OrderingKey,
    publisher::NatsPublisher,
    source::NatsSource,
};
