//! One connection to the queue under test, for promises of the source alone.

use std::{sync::Arc, time::Duration};

use futures_util::future::join;
use semel_consumer::{Delivery, Message, Settlement, Source};
use tokio::time::{Instant, sleep, timeout};

use super::SourceFixture;

/// Between two calls of a source that replied with an error.
const RETRY: Duration = Duration::from_millis(50);

/// A connection to the consumer under test.
pub(super) struct Queue {
    pub(super) fixture: Arc<dyn SourceFixture>,
    pub(super) source: Arc<dyn Source>,
}

impl Queue {
    pub(super) async fn open(fixture: Arc<dyn SourceFixture>) -> Self {
        let source = fixture.open().await;
        Self { fixture, source }
    }

    /// Another connection to the same consumer.
    pub(super) async fn open_another(&self) -> Self {
        Self::open(self.fixture.clone()).await
    }

    /// Publishes a message for each body, in this order.
    pub(super) async fn publish(&self, bodies: impl IntoIterator<Item = impl Into<String>>) {
        for body in bodies {
            self.fixture.publish(Message::new("orders", body.into())).await;
        }
    }

    /// One call of the source, repeated while it replies with an error. At least one message, and at most `max`.
    pub(super) async fn receive(&self, max: usize) -> Vec<Delivery> {
        let receiving = async {
            loop {
                match self.source.receive(max).await {
                    Ok(deliveries) => return deliveries,
                    Err(_) => sleep(RETRY).await,
                }
            }
        };
        let received = timeout(self.fixture.patience(), receiving).await;
        let deliveries = received.unwrap_or_else(|_| panic!("no message was handed over"));
        assert!(!deliveries.is_empty(), "the source ended, although its queue goes on");
        assert!(deliveries.len() <= max, "{} messages for a maximum of {max}", deliveries.len());
        deliveries
    }

    /// Exactly one message.
    pub(super) async fn receive_one(&self) -> Delivery {
        self.receive(1).await.remove(0)
    }

    /// Receives until there are `count` deliveries.
    pub(super) async fn receive_all(&self, count: usize) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < count {
            deliveries.extend(self.receive(count - deliveries.len()).await);
        }
        deliveries
    }

    /// Receives until each of these bodies has come, and nothing else, and acknowledges all.
    pub(super) async fn receive_and_ack(&self, bodies: &[&str]) {
        let mut missing: Vec<_> = bodies.to_vec();
        while !missing.is_empty() {
            let delivery = self.receive_one().await;
            let body = body(&delivery);
            let at = missing.iter().position(|it| *it == body);
            let at = at.unwrap_or_else(|| panic!("{body:?} was handed over, expected {missing:?}"));
            missing.remove(at);
            ack(delivery).await;
        }
    }

    /// Asserts that no message is handed over for this long.
    pub(super) async fn receives_nothing(&self, span: Duration, promise: &str) {
        let until = Instant::now() + span;
        loop {
            match timeout(until.saturating_duration_since(Instant::now()), self.source.receive(10))
                .await
            {
                Err(_) => return,
                Ok(Err(_)) => sleep(RETRY).await,
                Ok(Ok(deliveries)) => {
                    let bodies: Vec<_> = deliveries.iter().map(body).collect();
                    panic!("{promise}: {bodies:?} came");
                }
            }
        }
    }

    /// Asserts that no message is handed over although its deadline is over, neither here nor to a new process.
    pub(super) async fn nothing_is_left(&self, promise: &str) {
        self.receives_nothing(self.deadline() * 2, promise).await;
        let another = self.open_another().await;
        another.receives_nothing(self.deadline(), promise).await;
        // Shows that the queue still works.
        another.publish(["last"]).await;
        let receiving = async {
            let (here, there) = (self.receive_one(), another.receive_one());
            tokio::select! { delivery = here => delivery, delivery = there => delivery }
        };
        let last = receiving.await;
        assert_eq!(body(&last), "last", "{promise}");
        ack(last).await;
    }

    /// Asserts that no message is handed over for this long, while `settlement` is extended.
    pub(super) async fn receives_nothing_while_extended(
        &self,
        settlement: &dyn Settlement,
        span: Duration,
        promise: &str,
    ) {
        let until = Instant::now() + span;
        let extending = async {
            while Instant::now() < until {
                settlement.extend().await.expect("the broker extends an open delivery");
                sleep(self.deadline() / 4).await;
            }
        };
        join(extending, self.receives_nothing(span, promise)).await;
    }

    pub(super) fn deadline(&self) -> Duration {
        self.fixture.ack_deadline()
    }
}

/// The body of a message of the suite, which is text.
pub(super) fn body(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.body).into_owned()
}

pub(super) async fn ack(delivery: Delivery) {
    delivery.ack().await.expect("the broker confirms the acknowledgement of an open delivery");
}

pub(super) async fn nack(delivery: Delivery, delay: Duration) {
    delivery.nack(delay).await.expect("the broker confirms that an open delivery is given back");
}
