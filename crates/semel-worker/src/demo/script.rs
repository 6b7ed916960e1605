//! What the demo publishes and prints. Every line is about what has happened, and the demo fails if anything else did.

use std::{
    fmt,
    io::{self, Write},
    sync::Arc,
};

use anyhow::{Result, ensure};
use http::StatusCode;
use semel_consumer::{
    Message,
    dead_letter::DeadLetterQueue,
    memory::{MemorySettlement, MemorySource},
};

use super::endpoint::{DemoEndpoint, DemoRequest};

/// The first order, which is published twice.
const FIRST: &str = "order-1";

/// The demo's messages, and what became of them.
pub(super) struct DemoScript {
    pub(super) source: MemorySource,
    pub(super) endpoint: DemoEndpoint,
    pub(super) letters: Arc<dyn DeadLetterQueue>,
}

impl DemoScript {
    pub(super) async fn run(self) -> Result<()> {
        say(format_args!(
            "Messages are in memory, the handler is an HTTP endpoint in this process (http://{}/events),\n\
             and the store is a temporary folder.\n",
            self.endpoint.address
        ));
        let result = self.run_steps().await;
        // Also after a failure, so that the consumer ends.
        self.source.end();
        result
    }

    async fn run_steps(&self) -> Result<()> {
        self.first().await?;
        self.duplicate().await?;
        self.retried().await?;
        self.dead_letter().await?;
        let requests = self.endpoint.requests().len();
        ensure!(requests == 4, "the handler got {requests} requests");
        say(format_args!(
            "4 messages, 4 requests: 2 events handled once, 1 duplicate, 1 retry, 1 dead letter.\n\n\
             With a broker and a handler of your own:\n  \
             semel worker --source nats://127.0.0.1:4222/ORDERS/billing \\\n    \
             --handler http://127.0.0.1:3000/events --dead-letter file:dead-letters\n  \
             semel dead-letters list --dead-letter file:dead-letters"
        ));
        Ok(())
    }

    /// Publishes an order, and returns what the handler got for it and how its message was settled.
    async fn deliver(&self, id: &str) -> (Vec<DemoRequest>, MemorySettlement) {
        let before = self.endpoint.requests().len();
        self.source.publish(Message::new("orders", format!("{{\"order\":\"{id}\"}}")).with_id(id));
        self.source.until_settled().await;
        let requests = self.endpoint.requests().split_off(before);
        let settled = self.source.settled().pop().map(|settled| settled.how);
        (requests, settled.unwrap_or(MemorySettlement::Acked))
    }

    async fn first(&self) -> Result<()> {
        say(format_args!("1. {FIRST} is delivered."));
        let (requests, settled) = self.deliver(FIRST).await;
        show(&requests);
        ensure!(answers(&requests) == [StatusCode::OK], "{FIRST} was not handled");
        ensure!(settled == MemorySettlement::Acked, "{FIRST} was not acknowledged");
        say(format_args!("   Its outcome is recorded, then the message is acknowledged.\n"));
        Ok(())
    }

    async fn duplicate(&self) -> Result<()> {
        say(format_args!("2. {FIRST} is delivered again: the producer has sent a second copy."));
        let (requests, settled) = self.deliver(FIRST).await;
        show(&requests);
        ensure!(requests.is_empty(), "the copy of {FIRST} ran");
        ensure!(settled == MemorySettlement::Acked, "the copy of {FIRST} was not acknowledged");
        say(format_args!(
            "   No request: its outcome is recorded already. The copy is acknowledged.\n"
        ));
        Ok(())
    }

    async fn retried(&self) -> Result<()> {
        let id = DemoEndpoint::BUSY;
        say(format_args!("3. {id} is delivered. The handler is busy, and asks for a second."));
        let (requests, settled) = self.deliver(id).await;
        show(&requests);
        let expected = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK];
        ensure!(answers(&requests) == expected, "{id} was not tried again");
        ensure!(requests[0].key == requests[1].key, "the attempts at {id} had different keys");
        ensure!(settled == MemorySettlement::Acked, "{id} was not acknowledged");
        say(format_args!(
            "   The same Idempotency-Key on both attempts: a handler that has acted before knows it.\n"
        ));
        Ok(())
    }

    async fn dead_letter(&self) -> Result<()> {
        let id = DemoEndpoint::WRONG;
        say(format_args!("4. {id} is delivered. The handler refuses it for good."));
        let (requests, settled) = self.deliver(id).await;
        show(&requests);
        let expected = [StatusCode::UNPROCESSABLE_ENTITY];
        ensure!(answers(&requests) == expected, "{id} was not refused once");
        ensure!(matches!(settled, MemorySettlement::Rejected(_)), "{id} was not rejected");
        let letters = self.letters.list(None, 10).await?;
        let [letter] = &letters[..] else {
            anyhow::bail!("there are {} dead letters", letters.len());
        };
        ensure!(letter.event_id.as_deref() == Some(id), "the dead letter is another event");
        say(format_args!(
            "   A retry would not help. The message is a dead letter now, in {}:\n     \
             id {}, reason {}, class {}, attempts {}: {}\n",
            self.letters.name(),
            letter.id,
            letter.reason,
            letter.class,
            letter.attempts,
            letter.error
        ));
        Ok(())
    }
}

fn answers(requests: &[DemoRequest]) -> Vec<StatusCode> {
    requests.iter().map(|request| request.answer).collect()
}

fn show(requests: &[DemoRequest]) {
    for DemoRequest { id, key, attempt, answer } in requests {
        let key = key.get(..8).unwrap_or(key);
        say(format_args!(
            "   POST /events  ce-id: {id}  Idempotency-Key: {key}…  Semel-Attempt: {attempt}  ->  {}",
            answer.as_u16()
        ));
    }
}

/// The demo works without a reader of its explanation.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}
