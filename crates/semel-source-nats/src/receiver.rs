//! Receives deliveries, for one caller at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_nats::{Client, Message, Subscriber};
use semel_consumer::{Delivery, Settlement};
use semel_core::{Error, ErrorKind, Result};
use tokio::{runtime::Handle, sync::Mutex, time::sleep};

use crate::{
    ack_subject::DeliveryInfo,
    given_up::GivenUp,
    message::{self, OrderingKey},
    pull::Puller,
    settlement::{Acks, NatsSettlement},
};

/// How long the request of a dropped call waits for the next call. A consumer that was paused makes none.
const UNCLAIMED: Duration = Duration::from_secs(1);

/// Receives deliveries of one consumer.
pub(crate) struct Receiver {
    client: Client,
    acks: Acks,
    ordering_key: OrderingKey,
    given_up: Arc<GivenUp>,
    state: Mutex<ReceiverState>,
    calls: AtomicU64,
}

struct ReceiverState {
    puller: Puller,
    advisories: Subscriber,
}

impl Receiver {
    pub(crate) async fn open(
        puller: Puller,
        given_up: GivenUp,
        client: Client,
        (acks, ordering_key): (Acks, OrderingKey),
    ) -> Result<Arc<Self>> {
        let advisories = given_up.subscribe().await?;
        let state = Mutex::new(ReceiverState { puller, advisories });
        let (given_up, calls) = (Arc::new(given_up), AtomicU64::new(0));
        Ok(Arc::new(Self { client, acks, ordering_key, given_up, state, calls }))
    }

    /// Waits for deliveries, and returns one to `max` of them. The future can be dropped.
    pub(crate) async fn next(self: &Arc<Self>, max: usize) -> Result<Vec<Delivery>> {
        let call = Call::start(self);
        let received = self.receive(max).await;
        call.end();
        received
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        let state = &mut *self.state.lock().await;
        let messages = tokio::select! {
            biased;
            delivery = self.given_up.next(&mut state.advisories) => return Ok(vec![delivery]),
            messages = state.puller.next(max) => messages?,
        };
        messages.into_iter().map(|message| self.delivery(message)).collect()
    }

    fn delivery(&self, message: Message) -> Result<Delivery> {
        let subject = message.reply.clone().ok_or_else(not_a_delivery)?;
        let info = DeliveryInfo::parse(&subject).ok_or_else(not_a_delivery)?;
        let settlement = NatsSettlement::new(self.client.clone(), subject, self.acks);
        Ok(Delivery::new(message::delivered(message, &info, &self.ordering_key), settlement))
    }

    /// Gives back what was received and not returned. The next call requests messages again.
    async fn give_back(&self, state: &mut ReceiverState) -> Result<()> {
        for subject in state.puller.close().await.into_iter().filter_map(|message| message.reply) {
            NatsSettlement::new(self.client.clone(), subject, self.acks)
                .nack(Duration::ZERO)
                .await?;
        }
        Ok(())
    }

    /// Gives back what was received and not returned, and receives nothing more.
    pub(crate) async fn close(&self) -> Result<()> {
        let state = &mut *self.state.lock().await;
        let given_back = self.give_back(state).await;
        // It fails if there is no connection; then there is nothing to unsubscribe from.
        let _ = state.advisories.unsubscribe().await;
        given_back
    }
}

/// A call. If it is dropped and no other follows, its request is withdrawn: the deadlines of the messages that it
/// brings would not be extended.
struct Call {
    receiver: Option<Arc<Receiver>>,
    number: u64,
}

impl Call {
    fn start(receiver: &Arc<Receiver>) -> Self {
        let number = receiver.calls.fetch_add(1, SeqCst) + 1;
        Self { receiver: Some(receiver.clone()), number }
    }

    fn end(mut self) {
        self.receiver = None;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let (Some(receiver), number) = (self.receiver.take(), self.number) else { return };
        // Without a runtime, the connection is gone, too.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            sleep(UNCLAIMED).await;
            let is_last = || receiver.calls.load(SeqCst) == number;
            if !is_last() {
                return;
            }
            let state = &mut *receiver.state.lock().await;
            if is_last()
                && let Err(error) = receiver.give_back(state).await
            {
                tracing::debug!(%error, "nats: messages were not given back; they come again after their deadline");
            }
        });
    }
}

fn not_a_delivery() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "nats: a delivery cannot be acknowledged: it has no acknowledgement subject",
    )
}
