//! Servers that stop, hang or come back.

use std::time::Duration;

use semel_consumer::{Delivery, Source};
use semel_core::{ErrorKind, Result};
use semel_servers::{NATS, Running};
use semel_source_nats::NatsSource;
use serde_json::json;
use tokio::time::sleep;

use crate::common::{Broker, body, receive_one, soon, until};

async fn with_consumer(server: &Running) -> Broker {
    let broker = Broker::on(server.url(), json!({})).await;
    broker.make_consumer("c", json!({})).await;
    broker
}

/// Calls again after an error, as the runtime does.
pub(crate) async fn receive_at_last(source: &NatsSource) -> Vec<Delivery> {
    soon(async {
        loop {
            match source.receive(10).await {
                Ok(deliveries) => return deliveries,
                Err(error) => assert!(is_passing(&Err(error))),
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

fn is_passing(result: &Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::Unavailable)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_survives_a_restart_of_the_server() {
    let mut server = Running::start(&NATS).unwrap();
    let broker = with_consumer(&server).await;
    let source = broker.source().await;
    broker.publish("x", &[], "before").await;
    receive_one(&source).await.ack().await.unwrap();
    let (received, ()) = tokio::join!(receive_at_last(&source), async {
        until("it waits", async || broker.consumer_info().await["num_waiting"] == 1).await;
        tokio::task::block_in_place(|| {
            server.kill().unwrap();
            server.restart().unwrap();
        });
        let after = Broker {
            url: server.url().into(),
            client: async_nats::connect(server.url()).await.unwrap(),
            ..broker
        };
        after.publish("x", &[], "after").await;
    });
    assert_eq!(received.iter().map(body).collect::<Vec<_>>(), ["after"]);
    for delivery in received {
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_every_call_fails_and_later_works_again() {
    let mut server = Running::start(&NATS).unwrap();
    let broker = with_consumer(&server).await;
    broker.publish("x", &[], "one").await;
    let source = broker.source().await;
    let held = receive_one(&source).await;
    tokio::task::block_in_place(|| server.kill().unwrap());
    let error = soon(source.receive(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no connection"), "{error}");
    assert!(is_passing(&soon(held.ack()).await));
    assert!(soon(source.lag()).await.is_err());
    tokio::task::block_in_place(|| server.restart().unwrap());
    // The acknowledgement may have been lost, so the message may come again; a new one comes in any case.
    let again = async_nats::connect(server.url()).await.unwrap();
    let broker = Broker { client: again, ..broker };
    broker.publish("x", &[], "two").await;
    until("the new one arrives", async || {
        let received = receive_at_last(&source).await;
        let found = received.iter().any(|delivery| body(delivery) == "two");
        for delivery in received {
            delivery.ack().await.unwrap();
        }
        found
    })
    .await;
    source.close().await.unwrap();
}

/// A server that hangs keeps its connections open.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_noticed() {
    let server = Running::start(&NATS).unwrap();
    let broker = with_consumer(&server).await;
    let source = broker.source().await;
    broker.publish("x", &[], "one").await;
    let held = receive_one(&source).await;
    server.pause().unwrap();
    assert!(is_passing(&soon(held.ack()).await), "an acknowledgement is not confirmed");
    let error = soon(source.receive(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.resume().unwrap();
    let broker = Broker { client: async_nats::connect(server.url()).await.unwrap(), ..broker };
    broker.publish("x", &[], "two").await;
    until("the new one arrives", async || {
        receive_at_last(&source).await.iter().any(|delivery| body(delivery) == "two")
    })
    .await;
}
