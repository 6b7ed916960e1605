//! The router: one handler for each type of event.

use std::{collections::HashMap, fmt};

use futures_util::future::BoxFuture;
use semel_core::{Outcome, WorkError};

use crate::{
    event::Event,
    handler::{EventContext, Handler},
};

/// A handler that hands each event to the handler of its type. The policy for unknown types
/// ([`ConsumerBuilder::unknown_type`](crate::ConsumerBuilder::unknown_type)) decides about all others.
///
/// ```
/// use semel_consumer::{Event, EventContext, Router, handler_fn};
///
/// #[derive(serde::Deserialize)]
/// struct UserRegistered { email: String }
/// #[derive(serde::Deserialize)]
/// struct UserDeleted { id: u64 }
///
/// let router: Router = Router::new()
///     .on("UserRegistered", handler_fn(|event: Event<UserRegistered>, _: EventContext| async move {
///         println!("welcome {}", event.data.email);
///         Ok::<_, std::io::Error>(())
///     }))
///     .on("UserDeleted", handler_fn(|event: Event<UserDeleted>, _: EventContext| async move {
///         println!("goodbye {}", event.data.id);
///         Ok::<_, std::io::Error>(())
///     }));
/// # let _ = router;
/// ```
pub struct Router<Tx: Send = ()> {
    routes: HashMap<String, Box<dyn BoxedHandler<Tx>>>,
}

impl<Tx: Send> Router<Tx> {
    /// A router without handlers.
    #[must_use]
    pub fn new() -> Self {
        Self { routes: HashMap::new() }
    }

    /// Sets the handler for events of this type. It replaces an earlier one.
    #[must_use]
    pub fn on(mut self, event_type: impl Into<String>, handler: impl Handler<Tx>) -> Self {
        self.routes.insert(event_type.into(), Box::new(handler));
        self
    }
}

impl<Tx: Send> Default for Router<Tx> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Tx: Send> fmt::Debug for Router<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Router").field(&self.routes.keys()).finish()
    }
}

impl<Tx: Send + 'static> Handler<Tx> for Router<Tx> {
    async fn handle(
        &self,
        tx: &mut Tx,
        event: Event,
        context: EventContext,
    ) -> Result<Outcome, WorkError> {
        match self.routes.get(event.event_type()) {
            Some(handler) => handler.handle_boxed(tx, event, context).await,
            // A pipeline without the validation stage comes here.
            None => Err(WorkError::failure("unknown_type", "no handler takes events of this type")),
        }
    }

    fn accepts(&self, event_type: &str) -> bool {
        self.routes.get(event_type).is_some_and(|handler| handler.accepts_boxed(event_type))
    }
}

/// [`Handler`] for a trait object.
trait BoxedHandler<Tx>: Send + Sync {
    fn handle_boxed<'a>(
        &'a self,
        tx: &'a mut Tx,
        event: Event,
        context: EventContext,
    ) -> BoxFuture<'a, Result<Outcome, WorkError>>;

    fn accepts_boxed(&self, event_type: &str) -> bool;
}

impl<Tx: Send, H: Handler<Tx>> BoxedHandler<Tx> for H {
    fn handle_boxed<'a>(
        &'a self,
        tx: &'a mut Tx,
        event: Event,
        context: EventContext,
    ) -> BoxFuture<'a, Result<Outcome, WorkError>> {
        Box::pin(self.handle(tx, event, context))
    }

    fn accepts_boxed(&self, event_type: &str) -> bool {
        self.accepts(event_type)
    }
}
