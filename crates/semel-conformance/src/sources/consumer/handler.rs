//! The handler of a process: writes its runs to the journal, and does what the promise says.

use std::sync::Arc;

use semel_consumer::{Event, EventContext, Handler, Message};
use semel_core::{Outcome, WorkError};

use super::{Journal, Step};
use crate::breakable::Switch;

/// The header with the id of an event. Not the broker's message id: brokers drop copies with the same one.
pub(super) const EVENT_ID: &str = "event_id";

pub(super) fn event_id(message: &Message) -> Arc<str> {
    Arc::from(message.header(EVENT_ID).expect("the suite publishes events with ids"))
}

/// One process as its parts see it.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) number: usize,
    pub(super) dead: Switch,
    pub(super) journal: Arc<Journal>,
}

impl Identity {
    pub(super) fn write(&self, id: &Arc<str>, step: Step) {
        self.journal.write(self.number, id, step);
    }

    /// Returns while the process lives. A dead process does nothing more.
    pub(super) async fn alive(&self) {
        if self.dead.is_set() {
            std::future::pending::<()>().await;
        }
    }
}

/// One run of the handler.
pub(super) struct Run {
    pub(super) id: Arc<str>,
    pub(super) attempt: u32,
    pub(super) process: Identity,
    context: EventContext,
}

impl Run {
    /// The effect of the event: from here on, a second run would do it again.
    pub(super) async fn effect(&self) {
        self.process.alive().await;
        let key = self.context.downstream_key().to_string();
        self.process.write(&self.id, Step::Effect { key });
        // The process may have been killed by this entry.
        self.process.alive().await;
    }
}

pub(super) struct JournalHandler<F> {
    pub(super) process: Identity,
    pub(super) function: F,
}

impl<F, Fut> Handler for JournalHandler<F>
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), WorkError>> + Send,
{
    async fn handle(
        &self,
        (): &mut (),
        event: Event,
        context: EventContext,
    ) -> Result<Outcome, WorkError> {
        let (process, id) = (self.process.clone(), event_id(&event.message));
        process.alive().await;
        process.write(&id, Step::Ran { attempt: context.attempt() });
        process.alive().await;
        let run =
            Run { id: id.clone(), attempt: context.attempt(), process: process.clone(), context };
        let result = (self.function)(run).await;
        process.alive().await;
        process.write(&id, Step::Ended { succeeded: result.is_ok() });
        result.map(|()| Outcome::success(id.as_bytes().to_vec()))
    }

    fn accepts(&self, _: &str) -> bool {
        true
    }
}
