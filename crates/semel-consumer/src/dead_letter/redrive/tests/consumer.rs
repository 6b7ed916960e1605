//! Redrives into a whole consumer.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{MemoryStore, WorkError};

use super::fixture::{NAMESPACE, REASON};
use crate::{
    Consumer, EventContext, OnDeadLetter,
    dead_letter::{DeadLetterReason, MemoryDeadLetters, redrive::*},
    memory::MemorySource,
};

#[async_trait]
impl MessagePublisher for MemorySource {
    async fn publish(&self, message: &Message) -> Result<()> {
        Self::publish(self, message.clone());
        Ok(())
    }
}

/// The bank declines until it is open; all events belong to one customer.
#[derive(Debug, Default)]
struct Bank {
    is_open: AtomicBool,
    paid: Mutex<Vec<String>>,
}

fn order(id: &str) -> Message {
    Message::new("orders", format!("\"{id}\"")).with_id(id).with_ordering_key("customer-7")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn redriven_events_of_a_parked_key_run_in_their_order() {
    let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
    let (source, letters, bank) =
        (MemorySource::new(), MemoryDeadLetters::new(), Arc::<Bank>::default());
    let at_bank = bank.clone();
    let consumer = Consumer::builder(source.clone())
        .engine(engine.clone())
        .namespace(NAMESPACE)
        .name("billing")
        .dead_letters(letters.clone())
        .on_dead_letter(OnDeadLetter::Park)
        .handler(move |event: Event<String>, _: EventContext| {
            let bank = at_bank.clone();
            async move {
                if !bank.is_open.load(SeqCst) {
                    return Err(WorkError::failure("declined", "the bank is closed"));
                }
                bank.paid.lock().push(event.data);
                Ok(())
            }
        })
        .build()
        .unwrap();
    let running = tokio::spawn(consumer.run());
    for id in ["order-1", "order-2"] {
        source.publish(order(id));
    }
    until("both are dead letters", || letters.letters().len() == 2).await;
    let reasons: Vec<_> = letters.letters().iter().map(|letter| letter.reason).collect();
    assert_eq!(reasons, [DeadLetterReason::Failed, DeadLetterReason::Parked]);

    bank.is_open.store(true, SeqCst);
    let redrive =
        Redrive::new(engine, NAMESPACE, Arc::new(letters.clone()), Arc::new(source.clone()));
    let redriven = |at: usize| {
        let (redrive, id) = (redrive.clone(), letters.letters()[at].id.clone());
        async move { redrive.redrive(&id, REASON).await.unwrap() }
    };
    assert!(redriven(0).await.unparked);
    assert!(!redriven(0).await.unparked, "the key is open already");
    until("both are paid", || bank.paid.lock().len() == 2).await;
    assert_eq!(*bank.paid.lock(), ["order-1", "order-2"]);
    assert!(letters.letters().is_empty());

    source.end();
    running.await.unwrap().unwrap();
}
