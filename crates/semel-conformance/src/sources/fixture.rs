//! The broker under test, as the suite sees it.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_consumer::{Message, Source};

/// One consumer of a queue (stream, topic, subscription) of its own: empty at first, and used by one promise only.
#[async_trait]
pub trait SourceFixture: Send + Sync + 'static {
    /// Adds a message with this body, these headers, this message id and this ordering key, and returns once the broker
    /// has accepted it. The fixture chooses the topic. A broker with partitions puts messages without an ordering key
    /// into all of them, in turn.
    async fn publish(&self, message: Message);

    /// Connects to the consumer, as a process does that starts. All connections share the messages.
    async fn open(&self) -> Arc<dyn Source>;

    /// Stops the broker without notice, and starts it again with its data. Called only if
    /// [`SourceAbility::Restarts`] is supported, and on a fixture that was made for [`Broker::Own`].
    async fn restart_broker(&self);

    /// The abilities that this broker does not have. Promises that need one are reported as not shown, never as kept.
    fn unsupported(&self) -> &[SourceAbility];

    /// How long the broker waits for a settlement. For a broker without deadlines: within which a message of a process
    /// that is gone comes again. Short: many promises wait for its end.
    fn ack_deadline(&self) -> Duration;

    /// How long a promise waits for what must happen. It is only waited in full for what does not happen.
    fn patience(&self) -> Duration;

    /// How many events the last promise sends, while processes are killed.
    fn events(&self) -> usize;
}

const _: Option<&dyn SourceFixture> = None; // Fails to compile if `SourceFixture` stops being object safe.

/// Which broker a promise needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broker {
    /// One that other tests may use at the same time.
    Shared,
    /// One that no other test uses, because the promise restarts it.
    Own,
}

/// An ability that some promises need and not every broker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceAbility {
    /// A delivery that a living process holds for too long is delivered again, and the time can be extended. Every
    /// broker, also one without deadlines, delivers a message again whose delivery was dropped or whose process is gone.
    Deadlines,
    /// A negative acknowledgement has a delay.
    DelaysNacks,
    /// The broker counts how often it has delivered a message.
    CountsDeliveries,
    /// Messages with one ordering key are first delivered in the order in which they were published.
    KeepsOrder,
    /// A header may have several values.
    RepeatsHeaders,
    /// The broker keeps its messages while it restarts.
    Restarts,
}

impl fmt::Display for SourceAbility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadlines => "deadlines of deliveries",
            Self::DelaysNacks => "delayed negative acknowledgements",
            Self::CountsDeliveries => "counting deliveries",
            Self::KeepsOrder => "order",
            Self::RepeatsHeaders => "headers with several values",
            Self::Restarts => "a restart of the broker",
        })
    }
}
