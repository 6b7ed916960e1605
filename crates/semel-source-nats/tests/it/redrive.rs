//! A message on its whole way: it fails, becomes a dead letter, is published again and succeeds.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use parking_lot::Mutex;
use semel_consumer::{
    Consumer, Event, EventContext,
    dead_letter::{DeadLetterQueue, DeadLetterReason, Redrive},
};
use semel_core::{Engine, MemoryStore, WorkError};
use semel_source_nats::{NatsDeadLetters, NatsPublisher};
use serde_json::json;

use crate::common::{Broker, soon, unique, until};

#[derive(Default)]
struct Bank {
    is_open: AtomicBool,
    paid: Mutex<Vec<(String, String)>>,
}

#[tokio::test]
async fn a_redriven_message_is_processed_as_the_same_event() {
    let broker = Broker::with_consumer(json!({})).await;
    let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
    let letters = NatsDeadLetters::from_client(broker.client.clone(), unique("DEAD"));
    let letters = letters.create(true).connect().await.unwrap();
    let bank = Arc::<Bank>::default();
    let at_bank = bank.clone();
    let consumer = Consumer::builder(broker.source().await)
        .engine(engine.clone())
        .name("billing")
        .dead_letters(letters.clone())
        .handler(move |event: Event<String>, context: EventContext| {
            let bank = at_bank.clone();
            async move {
                if !bank.is_open.load(SeqCst) {
                    return Err(WorkError::failure("declined", "the bank is closed"));
                }
                bank.paid.lock().push((event.data, context.downstream_key().to_string()));
                Ok(())
            }
        })
        .build()
        .unwrap();
    let control = consumer.control();
    let running = tokio::spawn(consumer.run());
    // The stream refuses another message with this id, and knows the sequence that is expected here.
    let headers = [("Nats-Msg-Id", "order-1"), ("Nats-Expected-Last-Sequence", "0")];
    broker.publish("orders", &headers, "\"ten\"").await;
    until("it is a dead letter", async || letters.list(None, 2).await.unwrap().len() == 1).await;
    let letter = letters.list(None, 2).await.unwrap().remove(0);
    assert_eq!(letter.reason, DeadLetterReason::Failed);
    assert_eq!(letter.event_id.as_deref(), Some("order-1"));
    until("the failure is acknowledged", async || broker.unacknowledged().await == 0).await;

    bank.is_open.store(true, SeqCst);
    let publisher = NatsPublisher::from_client(broker.client.clone());
    let redrive = Redrive::new(engine, "default", Arc::new(letters.clone()), Arc::new(publisher));
    assert!(redrive.redrive(&letter.id, "the bank is open").await.unwrap().removed);
    until("it is paid", async || !bank.paid.lock().is_empty()).await;
    // The downstream key of the copy is that of the original: it is the id of the letter.
    assert_eq!(*bank.paid.lock(), [("ten".to_owned(), letter.id)]);
    assert!(letters.list(None, 2).await.unwrap().is_empty());
    control.stop();
    soon(running).await.unwrap().unwrap();
}
