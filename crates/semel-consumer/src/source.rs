//! What a broker has to do: hand over messages, and settle each of them.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_core::{Finding, Outcome, Result};

use crate::message::Message;

/// Where messages come from: a consumer of one stream, topic, subscription or queue.
///
/// The runtime receives in one task and settles in others. A message that is never settled must come again.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Waits for messages, and returns one to `max` of them. An empty list means that the source has ended: there will
    /// be no more messages.
    ///
    /// Dropping the future loses no message: a message that it took is delivered by the next call or comes again.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached. The runtime waits and calls again. With
    /// [`ErrorKind::Closed`](semel_core::ErrorKind::Closed) the source has ended for a reason that no further call can
    /// change: the runtime stops, and the consumer ends with this error.
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>>;

    /// What does not change while the source is open.
    fn info(&self) -> SourceInfo;

    /// How many messages wait in the broker for this consumer; `None` if the broker does not say.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached.
    async fn lag(&self) -> Result<Option<u64>>;

    /// Sends the recorded outcome of `message` to the address that it names for replies. Does nothing if it names none.
    ///
    /// # Errors
    ///
    /// When the broker did not take the reply. The message is not acknowledged then.
    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()>;

    /// Checks the broker's settings against those of the consumer. A finding that is bad stops the consumer before the
    /// first message.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached.
    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>>;

    /// The consumer has stopped: it does not receive any more, and it has settled what it received. A source that
    /// settles in the background finishes that here, and returns what it holds to the broker.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached. Unsettled messages come again.
    async fn close(&self) -> Result<()>;
}

const _: Option<&dyn Source> = None; // Fails to compile if `Source` stops being object safe.

#[async_trait]
impl<S: Source + ?Sized> Source for Arc<S> {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        (**self).receive(max).await
    }

    fn info(&self) -> SourceInfo {
        (**self).info()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        (**self).lag().await
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        (**self).reply(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        (**self).check(plan).await
    }

    async fn close(&self) -> Result<()> {
        (**self).close().await
    }
}

/// What does not change while a source is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// For logs and dead letters, such as `nats ORDERS/billing`. Without credentials.
    pub name: String,
    /// How long the broker waits for a delivery to be settled before it delivers the message again. `None` if it waits
    /// without limit, or the client extends the deadline by itself.
    pub ack_deadline: Option<Duration>,
    /// For how long the broker may deliver a message again. `None` if there is no limit.
    pub redelivery_window: Option<Duration>,
}

/// What a look at a source has found. Nothing was received from it, created or changed.
#[derive(Clone, Debug)]
pub struct ExaminedSource {
    /// What the source would be.
    pub info: SourceInfo,
    /// The findings about the settings of the broker.
    pub findings: Vec<Finding>,
}

/// The settings of a consumer that a source checks the broker's settings against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerPlan {
    /// Handlers that run at the same time.
    pub concurrency: usize,
    /// Deliveries that are received and not settled.
    pub max_in_flight: usize,
    /// Attempts at a message before it is dead-lettered.
    pub max_attempts: Option<u32>,
    /// The lease of a running handler.
    pub lease: Duration,
}

/// One message that was handed over, to be settled once. Dropping it unsettled makes the broker deliver it again.
pub struct Delivery {
    /// The message.
    pub message: Arc<Message>,
    settlement: Arc<dyn Settlement>,
}

impl Delivery {
    /// A delivery that is settled through `settlement`.
    pub fn new(message: impl Into<Arc<Message>>, settlement: impl Settlement) -> Self {
        Self { message: message.into(), settlement: Arc::new(settlement) }
    }

    /// The message is done: the broker must not deliver it again.
    ///
    /// # Errors
    ///
    /// When the broker did not confirm. The message may come again, and is then a duplicate.
    pub async fn ack(self) -> Result<()> {
        self.settlement.ack().await
    }

    /// The broker delivers the message again after `delay`.
    ///
    /// # Errors
    ///
    /// When the broker did not confirm. The message comes again when its deadline is over.
    pub async fn nack(self, delay: Duration) -> Result<()> {
        self.settlement.nack(delay).await
    }

    /// The message is in the dead-letter queue: the broker must not deliver it again. A broker that distinguishes this
    /// from an acknowledgement gets `reason`.
    ///
    /// # Errors
    ///
    /// When the broker did not confirm. The message may come again, and is then a duplicate.
    pub async fn reject(self, reason: &str) -> Result<()> {
        self.settlement.reject(reason).await
    }

    /// The message, and what settles it: for a source that wraps another one.
    #[must_use]
    pub fn into_parts(self) -> (Arc<Message>, Arc<dyn Settlement>) {
        (self.message, self.settlement)
    }

    /// Extends the deadline while this delivery waits or runs.
    pub(crate) fn settlement(&self) -> Arc<dyn Settlement> {
        self.settlement.clone()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivery").field(&self.message).finish()
    }
}

/// Settles one delivery, for a [`Source`] to implement. Users call [`Delivery`], which can be settled only once.
#[async_trait]
pub trait Settlement: Send + Sync + 'static {
    /// As [`Delivery::ack`]. Returns after the broker has confirmed, if it can.
    async fn ack(&self) -> Result<()>;
    /// As [`Delivery::nack`].
    async fn nack(&self, delay: Duration) -> Result<()>;
    /// As [`Delivery::reject`].
    async fn reject(&self, reason: &str) -> Result<()>;
    /// The message is still being worked on: its deadline starts again. May be called after the delivery was settled,
    /// and then does nothing.
    async fn extend(&self) -> Result<()>;
}

const _: Option<&dyn Settlement> = None;
