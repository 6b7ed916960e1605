//! Handles each order of a JetStream stream once: recorded ids in memory, in front of a NATS bucket that all processes
//! share. `NATS_URL=nats://127.0.0.1:4222 cargo run -p semel --features nats,source-nats --example consume_nats`

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use async_nats::jetstream;
use semel::{
    Cached, NatsStore, WorkError,
    consumer::{Consumer, ConsumerControl, Event, EventContext},
    source_nats::{NatsDeadLetters, NatsSource},
};
use serde::Deserialize;

#[derive(Deserialize)]
struct OrderPlaced {
    order: String,
    cents: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    publish(&url).await?;

    let ids = NatsStore::connect(&format!("{url}/example_ids")).await?;
    let invoices = Arc::new(AtomicU32::new(0));
    let sent = invoices.clone();
    let consumer = Consumer::builder(
        NatsSource::connect(&format!("{url}/EXAMPLE_ORDERS/billing?create=true")).await?,
    )
    .name("billing")
    .store(Cached::new(ids, 100_000))?
    .dead_letters(
        NatsDeadLetters::connect(&format!("{url}/EXAMPLE_DEAD?subject=example-dead&create=true"))
            .await?,
    )
    .handler(move |event: Event<OrderPlaced>, context: EventContext| {
        let sent = sent.clone();
        async move {
            if event.data.cents == 0 {
                // Final: the message becomes a dead letter.
                return Err(WorkError::failure("nothing_to_pay", "the order is empty"));
            }
            println!("invoice for {} with key {}", event.data.order, context.downstream_key());
            sent.fetch_add(1, SeqCst);
            Ok(())
        }
    })
    .build()?;

    let control = consumer.control();
    consumer.run_until(all_settled(&url, control)).await?;
    println!("4 messages, {} invoices", invoices.load(SeqCst));
    assert_eq!(invoices.load(SeqCst), 2);
    Ok(())
}

/// A new stream with two orders, a second copy of one of them, and an order that cannot be handled.
async fn publish(url: &str) -> Result<(), Box<dyn Error>> {
    let context = jetstream::new(async_nats::connect(url).await?);
    for stream in ["EXAMPLE_ORDERS", "EXAMPLE_DEAD", "KV_example_ids"] {
        let _ = context.delete_stream(stream).await;
    }
    let config = jetstream::stream::Config {
        name: "EXAMPLE_ORDERS".to_owned(),
        subjects: vec!["example.orders".to_owned()],
        max_age: std::time::Duration::from_secs(3600),
        ..Default::default()
    };
    context.create_stream(config).await?;
    for (id, cents) in [("order-1", 500), ("order-2", 700), ("order-1", 500), ("order-3", 0)] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("IdempotencyKey", id);
        let body = format!(r#"{{"order":"{id}","cents":{cents}}}"#);
        context.publish_with_headers("example.orders", headers, body.into()).await?.await?;
    }
    Ok(())
}

/// Waits until the server waits for no message. A service would wait for a signal.
async fn all_settled(url: &str, control: ConsumerControl) {
    let Ok(client) = async_nats::connect(url).await else { return };
    let context = jetstream::new(client);
    while !control.is_stopping() {
        let consumer = context.get_consumer_from_stream::<jetstream::consumer::pull::Config, _, _>(
            "billing",
            "EXAMPLE_ORDERS",
        );
        if let Ok(mut consumer) = consumer.await
            && let Ok(info) = consumer.info().await
            && info.num_pending == 0
            && info.num_ack_pending == 0
        {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
