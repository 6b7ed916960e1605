//! A source in memory, with faults that a test can inject. For tests and examples: its messages end with the process.
//!
//! It behaves like a broker with deadlines: a delivery that is not settled in time is delivered again, and an
//! acknowledgement that is lost leaves the message in the broker. [`MemorySource::without_ack_deadline`] behaves like a
//! broker that has none.

mod broker;
mod faults;

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use semel_core::{Error, ErrorKind, Finding, Outcome, Result};
use tokio::{sync::Notify, time::Instant};

use self::broker::BrokerState;
pub use self::{
    broker::{MemorySettlement, SettledMessage},
    faults::{FaultRate, MemoryFaults},
};
use crate::{
    message::Message,
    source::{ConsumerPlan, Delivery, Settlement, Source, SourceInfo},
};

/// A source in memory. Clones are connections to the same broker, as of several processes.
///
/// ```
/// use semel_consumer::{Consumer, Event, EventContext, Message, memory::MemorySource};
/// use semel_core::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = MemorySource::new();
/// source.publish(Message::new("orders", r#"{"cents":500}"#).with_id("order-1"));
/// source.publish(Message::new("orders", r#"{"cents":500}"#).with_id("order-1"));
/// source.end();
/// Consumer::builder(source.clone())
///     .store(MemoryStore::new())?
///     .drop_dead_letters()
///     .handler(|_: Event<serde_json::Value>, _: EventContext| async { Ok::<_, std::io::Error>(()) })
///     .build()?
///     .run()
///     .await?;
/// assert_eq!(source.settled().len(), 2); // one ran, the other was a duplicate
/// # Ok(()) }
/// ```
pub struct MemorySource {
    shared: Arc<Shared>,
    connection: u64,
}

struct Shared {
    broker: Mutex<BrokerState>,
    /// Notified when a message may be ready, and when one is settled.
    changed: Notify,
    settled: Notify,
    /// `None`: a dropped delivery comes again at once, and a held one never.
    ack_deadline: Option<Duration>,
    connections: AtomicU64,
}

impl MemorySource {
    /// How long a delivery may stay unsettled by default.
    pub const ACK_DEADLINE: Duration = Duration::from_secs(30);
    /// The deadline of a delivery that has none.
    const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

    /// An empty source.
    #[must_use]
    pub fn new() -> Self {
        Self::with_ack_deadline(Self::ACK_DEADLINE)
    }

    /// An empty source that delivers a message again after this time without a settlement.
    #[must_use]
    pub fn with_ack_deadline(ack_deadline: Duration) -> Self {
        Self::with_deadline(Some(ack_deadline))
    }

    /// An empty source that waits for a settlement for as long as the delivery exists. A delivery that is dropped
    /// unsettled comes again at once.
    #[must_use]
    pub fn without_ack_deadline() -> Self {
        Self::with_deadline(None)
    }

    fn with_deadline(ack_deadline: Option<Duration>) -> Self {
        let shared = Shared {
            broker: Mutex::new(BrokerState::default()),
            changed: Notify::new(),
            settled: Notify::new(),
            ack_deadline,
            connections: AtomicU64::new(1),
        };
        Self { shared: Arc::new(shared), connection: 0 }
    }

    /// Adds a message, and returns its number. Its position is `memory/NUMBER`.
    pub fn publish(&self, message: Message) -> u64 {
        let number = self.shared.broker.lock().publish(message);
        self.shared.changed.notify_waiters();
        number
    }

    /// Adds another copy of a message, as a producer does that did not get the broker's confirmation. `None` if there
    /// was no such message.
    pub fn duplicate(&self, number: u64) -> Option<u64> {
        let copy = self.shared.broker.lock().duplicate(number)?;
        self.shared.changed.notify_waiters();
        Some(copy)
    }

    /// No more messages will be published: the source ends when all are settled.
    pub fn end(&self) {
        self.shared.broker.lock().end();
        self.shared.changed.notify_waiters();
    }

    /// Sets the faults from now on.
    pub fn inject(&self, faults: MemoryFaults) {
        self.shared.broker.lock().set_faults(faults);
        self.shared.changed.notify_waiters();
    }

    /// Takes all deliveries back, as a broker does that lost its consumer: their settlements have no effect any more,
    /// and the messages are delivered again at once.
    pub fn take_back(&self) {
        self.shared.take_back(None);
    }

    /// What was settled and how, in order.
    #[must_use]
    pub fn settled(&self) -> Vec<SettledMessage> {
        self.shared.broker.lock().settled().to_vec()
    }

    /// Replies that were sent: the address, and the outcome.
    #[must_use]
    pub fn replies(&self) -> Vec<(String, Outcome)> {
        self.shared.broker.lock().replies().to_vec()
    }

    /// Messages that are not settled for good.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.broker.lock().open()
    }

    /// Waits until all messages are settled for good.
    pub async fn until_settled(&self) {
        loop {
            let settled = self.shared.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.open() == 0 {
                return;
            }
            settled.await;
        }
    }
}

/// Another connection to the same broker.
impl Clone for MemorySource {
    fn clone(&self) -> Self {
        let connection = self.shared.connections.fetch_add(1, Relaxed);
        Self { shared: self.shared.clone(), connection }
    }
}

impl Default for MemorySource {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource").field("open", &self.open()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for MemorySource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let next = {
                let mut broker = self.shared.broker.lock();
                if broker.faults().is_down {
                    return Err(unreachable_broker());
                }
                let deadline = self.shared.ack_deadline.unwrap_or(Self::NEVER);
                let taken = broker.take(max, Instant::now(), deadline, self.connection);
                if !taken.is_empty() {
                    // Other calls that wait have to look when these messages are due.
                    self.shared.changed.notify_waiters();
                    return Ok(taken.into_iter().map(|it| self.delivery(it)).collect());
                }
                if broker.has_ended() {
                    return Ok(Vec::new());
                }
                broker.next_due()
            };
            match next {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, changed).await;
                }
                None => changed.await,
            }
        }
    }

    fn info(&self) -> SourceInfo {
        SourceInfo {
            name: "memory".to_owned(),
            ack_deadline: self.shared.ack_deadline,
            redelivery_window: Some(Duration::from_secs(3600)),
        }
    }

    async fn lag(&self) -> Result<Option<u64>> {
        Ok(Some(self.shared.broker.lock().waiting() as u64))
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        let mut broker = self.shared.broker.lock();
        if broker.faults().is_down {
            return Err(unreachable_broker());
        }
        if let Some(address) = &message.reply_to {
            broker.reply(address.clone(), outcome.clone());
        }
        Ok(())
    }

    async fn check(&self, _: &ConsumerPlan) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<()> {
        self.shared.take_back(Some(self.connection));
        Ok(())
    }
}

impl MemorySource {
    fn delivery(&self, taken: broker::Taken) -> Delivery {
        let settlement = BrokerSettlement {
            shared: self.shared.clone(),
            number: taken.number,
            delivery: taken.delivery,
        };
        Delivery::new(taken.message, settlement)
    }
}

impl Shared {
    fn take_back(&self, connection: Option<u64>) {
        self.broker.lock().take_back(connection);
        self.changed.notify_waiters();
    }
}

struct BrokerSettlement {
    shared: Arc<Shared>,
    number: u64,
    /// Which delivery of the message this is.
    delivery: u32,
}

impl BrokerSettlement {
    fn settle(&self, how: MemorySettlement) -> Result<()> {
        let mut broker = self.shared.broker.lock();
        let result = broker.settle(self.number, self.delivery, how, Instant::now());
        drop(broker);
        self.shared.settled.notify_waiters();
        self.shared.changed.notify_waiters();
        result
    }
}

/// A deadline brings the message back by itself.
impl Drop for BrokerSettlement {
    fn drop(&mut self) {
        if self.shared.ack_deadline.is_none() {
            self.shared.broker.lock().drop_delivery(self.number, self.delivery);
            self.shared.changed.notify_waiters();
        }
    }
}

#[async_trait]
impl Settlement for BrokerSettlement {
    async fn ack(&self) -> Result<()> {
        self.settle(MemorySettlement::Acked)
    }

    async fn nack(&self, delay: Duration) -> Result<()> {
        self.settle(MemorySettlement::Nacked(delay))
    }

    async fn reject(&self, reason: &str) -> Result<()> {
        self.settle(MemorySettlement::Rejected(reason.to_owned()))
    }

    async fn extend(&self) -> Result<()> {
        match self.shared.ack_deadline {
            Some(deadline) => {
                let until = Instant::now() + deadline;
                self.shared.broker.lock().extend(self.number, self.delivery, until)
            }
            None => Ok(()),
        }
    }
}

pub(crate) fn unreachable_broker() -> Error {
    Error::new(ErrorKind::Unavailable, "the broker in memory is down")
}
