//! The source conformance suite, on real servers.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, HeaderMap, Request};
use async_trait::async_trait;
use semel_conformance::sources::{self, SourceAbility, SourceFixture};
use semel_consumer::{Message, Source};
use semel_servers::{NATS, Running};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, RwLock},
    task::block_in_place,
    time::sleep,
};

use crate::common::{Broker, shared, soon};

const ACK_WAIT: Duration = Duration::from_secs(1);

/// A stream and a consumer of its own. A server of its own, too, if the promise restarts it.
struct NatsFixture {
    broker: Broker,
    /// Publishes.
    client: RwLock<Client>,
    server: Option<Mutex<Running>>,
}

async fn nats(needed: sources::Broker) -> NatsFixture {
    let server = match needed {
        sources::Broker::Shared => None,
        sources::Broker::Own => Some(Running::start(&NATS).unwrap()),
    };
    let url = server.as_ref().map_or_else(shared, |server| server.url().to_owned());
    let broker = Broker::on(&url, json!({})).await;
    broker
        .make_consumer("c", json!({ "ack_wait": u64::try_from(ACK_WAIT.as_nanos()).unwrap() }))
        .await;
    NatsFixture {
        client: RwLock::new(broker.client.clone()),
        broker,
        server: server.map(Mutex::new),
    }
}

impl NatsFixture {
    /// JetStream reads its files after the server has begun to accept connections.
    async fn has_stream(&self, client: &Client) -> bool {
        let subject = format!("$JS.API.STREAM.INFO.{}", self.broker.stream);
        let reply = client.request(subject, "".into()).await.ok();
        let reply = reply.and_then(|reply| serde_json::from_slice::<Value>(&reply.payload).ok());
        reply.is_some_and(|reply| reply["error"].is_null())
    }
}

#[async_trait]
impl SourceFixture for NatsFixture {
    async fn publish(&self, message: Message) {
        let mut headers = HeaderMap::new();
        for header in &message.headers {
            headers.append(header.name.as_str(), std::str::from_utf8(&header.value).unwrap());
        }
        for (name, value) in
            [("Nats-Msg-Id", message.message_id), ("Semel-Ordering-Key", message.ordering_key)]
        {
            if let Some(value) = value {
                headers.insert(name, value.as_str());
            }
        }
        let request = Request::new().headers(headers).payload(message.body);
        let ack = self
            .client
            .read()
            .await
            .send_request(self.broker.subject(&message.topic), request)
            .await;
        let ack: Value = serde_json::from_slice(&ack.unwrap().payload).unwrap();
        assert_eq!(ack["error"], Value::Null, "{ack}");
    }

    async fn open(&self) -> Arc<dyn Source> {
        Arc::new(self.broker.source().await)
    }

    async fn restart_broker(&self) {
        let mut server = self.server.as_ref().expect("a server of its own").lock().await;
        block_in_place(|| {
            server.kill().unwrap();
            server.restart().unwrap();
        });
        *self.client.write().await = async_nats::connect(server.url()).await.unwrap();
        let client = self.client.read().await.clone();
        let waiting = async {
            while !self.has_stream(&client).await {
                sleep(Duration::from_millis(20)).await;
            }
        };
        soon(waiting).await;
    }

    fn unsupported(&self) -> &[SourceAbility] {
        &[]
    }

    fn ack_deadline(&self) -> Duration {
        ACK_WAIT
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn events(&self) -> usize {
        2_000
    }
}

semel_conformance::source_tests!(nats);
