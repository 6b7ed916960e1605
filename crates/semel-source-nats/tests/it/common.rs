//! A stream and a consumer that no other test uses, and what the server says about them.

use std::time::Duration;

use async_nats::{Client, HeaderMap};
use semel_consumer::{Delivery, Source};
use semel_servers::needed;
use semel_source_nats::{NatsSource, NatsSourceBuilder};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// Long enough for a busy machine, and for a deadline: a server that hung may have sent a message to a request that was
/// abandoned, and it comes again after its deadline.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// The deadline of most consumers: it ends in no test that does not wait for it.
const LONG: Duration = Duration::from_secs(60);

/// The server that tests share.
pub(crate) fn shared() -> String {
    needed("SEMEL_TEST_NATS_URL")
}

/// A name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{:016x}", rand::random::<u64>())
}

/// Waits until `is_so`.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it never happened: {what}"));
}

/// The result of a future that must end.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it ends")
}

/// A stream with the subjects `STREAM.>` and its consumer `c`.
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) stream: String,
}

impl Broker {
    /// A stream without a consumer on the shared server.
    pub(crate) async fn with_stream(change: Value) -> Self {
        Self::on(&shared(), change).await
    }

    /// A stream and a consumer on the shared server.
    pub(crate) async fn with_consumer(change: Value) -> Self {
        let broker = Self::with_stream(json!({})).await;
        broker.make_consumer("c", change).await;
        broker
    }

    /// A stream without a consumer on the server at `url`.
    pub(crate) async fn on(url: &str, change: Value) -> Self {
        Self::over(async_nats::connect(url).await.unwrap(), url, change).await
    }

    /// A stream without a consumer, made over a connection to the server at `url`.
    pub(crate) async fn over(client: Client, url: &str, change: Value) -> Self {
        let broker = Self { url: url.to_owned(), client, stream: unique("T") };
        broker.make_stream(&broker.stream, change).await;
        broker
    }

    pub(crate) async fn make_stream(&self, name: &str, change: Value) {
        let mut config = json!({
            "name": name, "subjects": [format!("{name}.>")], "storage": "file", "retention": "limits",
            "discard": "old", "num_replicas": 1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
        });
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let made = self.api(&format!("STREAM.CREATE.{name}"), config).await;
        assert_eq!(made["error"], Value::Null, "{made}");
    }

    pub(crate) async fn make_consumer(&self, name: &str, change: Value) {
        let mut config = json!({
            "durable_name": name, "deliver_policy": "all", "ack_policy": "explicit",
            "ack_wait": u64::try_from(LONG.as_nanos()).unwrap(), "max_deliver": -1,
        });
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let request = json!({ "stream_name": self.stream, "config": config });
        let made =
            self.api(&format!("CONSUMER.DURABLE.CREATE.{}.{name}", self.stream), request).await;
        assert_eq!(made["error"], Value::Null, "{made}");
    }

    /// Sends one request to JetStream's API.
    pub(crate) async fn api(&self, api: &str, body: Value) -> Value {
        let reply =
            self.client.request(format!("$JS.API.{api}"), body.to_string().into()).await.unwrap();
        serde_json::from_slice(&reply.payload).unwrap()
    }

    pub(crate) async fn consumer_info(&self) -> Value {
        self.api(&format!("CONSUMER.INFO.{}.c", self.stream), json!({})).await
    }

    /// How many messages the server has delivered and waits for.
    pub(crate) async fn unacknowledged(&self) -> u64 {
        self.consumer_info().await["num_ack_pending"].as_u64().unwrap()
    }

    /// How many messages are in the stream.
    pub(crate) async fn stored(&self) -> u64 {
        let info = self.api(&format!("STREAM.INFO.{}", self.stream), json!({})).await;
        info["state"]["messages"].as_u64().unwrap()
    }

    pub(crate) fn subject(&self, rest: &str) -> String {
        format!("{}.{rest}", self.stream)
    }

    pub(crate) async fn publish(&self, rest: &str, headers: &[(&str, &str)], body: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, *value);
        }
        let request = async_nats::Request::new().headers(map).payload(body.to_owned().into());
        let ack = self.client.send_request(self.subject(rest), request).await.unwrap();
        let ack: Value = serde_json::from_slice(&ack.payload).unwrap();
        assert_eq!(ack["error"], Value::Null, "{ack}");
    }

    /// Publishes messages whose bodies are their numbers.
    pub(crate) async fn publish_numbers(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.publish("numbers", &[], &number.to_string()).await;
        }
    }

    pub(crate) fn source_url(&self) -> String {
        format!("{}/{}/c", self.url, self.stream)
    }

    pub(crate) fn builder(&self) -> NatsSourceBuilder {
        NatsSource::builder(&self.source_url())
    }

    pub(crate) async fn source(&self) -> NatsSource {
        self.builder().connect().await.unwrap()
    }
}

/// Receives `count` deliveries, in calls of at most `max`.
pub(crate) async fn receive(source: &NatsSource, count: usize, max: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        let received = soon(source.receive(max)).await.unwrap();
        assert!((1..=max).contains(&received.len()), "{}", received.len());
        deliveries.extend(received);
    }
    deliveries
}

/// Receives one delivery.
pub(crate) async fn receive_one(source: &NatsSource) -> Delivery {
    receive(source, 1, 1).await.remove(0)
}

/// The body of a delivery.
pub(crate) fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.message.body).unwrap()
}
