//! A stream of one test on the NATS server that all tests share.

use std::{
    process,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::{Client, HeaderMap};
use semel_servers::needed;
use serde_json::{Value, json};

/// A stream with the consumer `c`, and the subject `STREAM.events`.
#[derive(Debug)]
pub(crate) struct JetStream {
    client: Client,
    pub(crate) stream: String,
    server: String,
}

impl JetStream {
    /// A stream whose consumer delivers again what is not acknowledged within a minute.
    pub(crate) async fn new() -> Self {
        Self::with_ack_wait(Duration::from_secs(60)).await
    }

    pub(crate) async fn with_ack_wait(ack_wait: Duration) -> Self {
        let server = needed("SEMEL_TEST_NATS_URL");
        let client = async_nats::connect(&server).await.unwrap();
        let this = Self { client, stream: unique(), server };
        let hour = Duration::from_secs(3600).as_nanos();
        let stream = json!({
            "name": this.stream, "subjects": [format!("{}.>", this.stream)], "storage": "memory",
            "retention": "limits", "num_replicas": 1, "max_age": u64::try_from(hour).unwrap(),
        });
        this.api(&format!("STREAM.CREATE.{}", this.stream), stream).await;
        let consumer = json!({
            "durable_name": "c", "deliver_policy": "all", "ack_policy": "explicit", "max_deliver": -1,
            "ack_wait": u64::try_from(ack_wait.as_nanos()).unwrap(),
        });
        let request = json!({"stream_name": this.stream, "config": consumer});
        this.api(&format!("CONSUMER.DURABLE.CREATE.{}.c", this.stream), request).await;
        this
    }

    /// The URL of the consumer.
    pub(crate) fn url(&self) -> String {
        format!("{}/{}/c", self.server, self.stream)
    }

    /// The URL of the server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Publishes a CloudEvent of the type `order.placed`.
    pub(crate) async fn publish(&self, id: &str) {
        self.publish_with(&cloud_event(id), format!("{{\"order\":\"{id}\"}}")).await;
    }

    pub(crate) async fn publish_with(&self, headers: &[(&str, &str)], body: impl Into<String>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, *value);
        }
        let subject = format!("{}.events", self.stream);
        let ack = self.client.request_with_headers(subject, map, body.into().into()).await.unwrap();
        let ack: Value = serde_json::from_slice(&ack.payload).unwrap();
        assert_eq!(ack["error"], Value::Null, "{ack}");
    }

    /// Messages that are not acknowledged: those that wait, and those that are delivered.
    pub(crate) async fn open(&self) -> u64 {
        let info = self.api(&format!("CONSUMER.INFO.{}.c", self.stream), json!({})).await;
        info["num_pending"].as_u64().unwrap() + info["num_ack_pending"].as_u64().unwrap()
    }

    /// Waits until every message is acknowledged.
    pub(crate) async fn until_settled(&self) {
        // A consumer may learn later than the stream about a message, and counts it as pending only then.
        let stream = self.api(&format!("STREAM.INFO.{}", self.stream), json!({})).await;
        let last = stream["state"]["last_seq"].as_u64();
        super::until("all messages are acknowledged", async || {
            let info = self.api(&format!("CONSUMER.INFO.{}.c", self.stream), json!({})).await;
            info["delivered"]["stream_seq"].as_u64() >= last
                && info["num_pending"] == 0
                && info["num_ack_pending"] == 0
        })
        .await;
    }

    async fn api(&self, api: &str, body: Value) -> Value {
        let subject = format!("$JS.API.{api}");
        let reply = self.client.request(subject, body.to_string().into()).await.unwrap();
        let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
        assert_eq!(reply["error"], Value::Null, "{api}: {reply}");
        reply
    }
}

/// The headers of a CloudEvent with JSON data.
pub(crate) fn cloud_event(id: &str) -> [(&str, &str); 5] {
    [
        ("ce-specversion", "1.0"),
        ("ce-id", id),
        ("ce-source", "/shop"),
        ("ce-type", "order.placed"),
        ("content-type", "application/json"),
    ]
}

/// A name that no other test uses.
pub(super) fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    format!("W{now:x}-{:x}-{:x}", process::id(), NEXT.fetch_add(1, Relaxed))
}
