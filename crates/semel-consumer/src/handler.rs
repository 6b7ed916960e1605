//! Handlers: the user's code that carries out an event's effect.

use std::{fmt, future::Future, marker::PhantomData, time::Duration};

#[cfg(feature = "inbox")]
use futures_util::future::BoxFuture;
use semel_core::{Context, DownstreamKey, KeyHash, Outcome, Token, Verdict, WorkError};
#[cfg(feature = "inbox")]
use semel_inbox::InboxContext;
use serde::{Serialize, de::DeserializeOwned};

use crate::event::Event;

/// Carries out the effect of an event. `Tx` is the transaction that it writes in, or `()` without one.
///
/// The outcome of a success is recorded. How an error ends an attempt is in [`WorkError`].
pub trait Handler<Tx: Send = ()>: Send + Sync + 'static {
    /// Handles one event.
    fn handle(
        &self,
        tx: &mut Tx,
        event: Event,
        context: EventContext,
    ) -> impl Future<Output = Result<Outcome, WorkError>> + Send;

    /// Whether there is code for events of this type. The policy for unknown types decides about the others.
    fn accepts(&self, event_type: &str) -> bool;
}

/// What a handler gets besides the event.
#[derive(Clone, Debug)]
pub struct EventContext {
    protection: Protection,
    attempt: u32,
}

/// What keeps a second copy from running.
#[derive(Clone, Debug)]
enum Protection {
    Lease(Context),
    #[cfg(feature = "inbox")]
    Transaction(InboxContext),
    /// Nothing: ids are only remembered after a success.
    None(KeyHash),
}

impl EventContext {
    pub(crate) fn leased(context: Context) -> Self {
        Self { attempt: context.attempt(), protection: Protection::Lease(context) }
    }

    #[cfg(feature = "inbox")]
    pub(crate) fn in_transaction(context: InboxContext, attempt: u32) -> Self {
        Self { protection: Protection::Transaction(context), attempt }
    }

    pub(crate) const fn tracked(key: KeyHash, attempt: u32) -> Self {
        Self { protection: Protection::None(key), attempt }
    }

    /// Which attempt this is, counted from one.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The key to send to other services: the same on every attempt and for every copy of the event. If the receiver
    /// deduplicates on it, the effect happens once.
    #[must_use]
    pub fn downstream_key(&self) -> DownstreamKey {
        self.derive("")
    }

    /// A separate downstream key for each of several effects, such as `derive("charge")`.
    #[must_use]
    pub fn derive(&self, label: &str) -> DownstreamKey {
        match &self.protection {
            Protection::Lease(context) => context.derive(label),
            #[cfg(feature = "inbox")]
            Protection::Transaction(context) => context.derive(label),
            Protection::None(key) => DownstreamKey::new(key, label),
        }
    }

    /// Rises with every attempt while the event is remembered. It orders writes; it does not deduplicate them. 0 if
    /// there is no lease.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lease().map_or(0, Context::token)
    }

    /// True once the lease is lost or about to be: start no new effect.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.lease().is_some_and(Context::is_lease_lost)
    }

    /// Waits until the lease is lost; forever if there is none.
    pub async fn lease_lost(&self) {
        match self.lease() {
            Some(context) => context.lease_lost().await,
            None => std::future::pending().await,
        }
    }

    const fn lease(&self) -> Option<&Context> {
        match &self.protection {
            Protection::Lease(context) => Some(context),
            #[cfg(feature = "inbox")]
            Protection::Transaction(_) => None,
            Protection::None(_) => None,
        }
    }
}

/// A closure as a handler. Its events are read from JSON, and its values are recorded as JSON.
///
/// ```
/// use semel_consumer::{Event, EventContext, handler_fn};
/// use semel_core::WorkError;
///
/// #[derive(serde::Deserialize)]
/// struct UserRegistered { email: String }
///
/// let welcome = handler_fn(|event: Event<UserRegistered>, context: EventContext| async move {
///     if !event.data.email.contains('@') {
///         return Err(WorkError::failure("bad_address", "the address has no @"));
///     }
///     println!("mail to {} with key {}", event.data.email, context.downstream_key());
///     Ok(())
/// });
/// # let _ = welcome;
/// ```
pub fn handler_fn<T, R, E, F, Fut>(function: F) -> HandlerFn<T, F>
where
    F: Fn(Event<T>, EventContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: DeserializeOwned + Send + 'static,
    R: Serialize,
    E: Into<WorkError>,
{
    HandlerFn { function, data: PhantomData }
}

/// Made by [`handler_fn`].
pub struct HandlerFn<T, F> {
    function: F,
    data: PhantomData<fn() -> T>,
}

impl<T, F> fmt::Debug for HandlerFn<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerFn")
    }
}

impl<T, R, E, F, Fut> Handler for HandlerFn<T, F>
where
    F: Fn(Event<T>, EventContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: DeserializeOwned + Send + 'static,
    R: Serialize,
    E: Into<WorkError>,
{
    async fn handle(
        &self,
        (): &mut (),
        event: Event,
        context: EventContext,
    ) -> Result<Outcome, WorkError> {
        let event = event.decode()?;
        let value = (self.function)(event, context).await.map_err(Into::into)?;
        Ok(recorded(&value))
    }

    fn accepts(&self, _: &str) -> bool {
        true
    }
}

/// A closure as a handler that writes in a transaction. Its events are read from JSON, and its values are recorded as
/// JSON.
///
/// ```
/// use semel_consumer::{Event, EventContext, transaction_fn};
/// use semel_core::WorkError;
/// # use semel_inbox::{InboxTx, TxError};
///
/// #[derive(serde::Deserialize)]
/// struct UserRegistered { email: String }
///
/// # fn example<Tx: InboxTx + 'static>() -> impl semel_consumer::Handler<Tx> {
/// transaction_fn(|tx: &mut Tx, event: Event<UserRegistered>, _: EventContext| Box::pin(async move {
///     tx.query_text("INSERT INTO profiles (email) VALUES ($1)", &[&event.data.email]).await?;
///     Ok::<_, WorkError>(())
/// }))
/// # }
/// ```
#[cfg(feature = "inbox")]
pub fn transaction_fn<Tx, T, R, E, F>(function: F) -> TransactionHandlerFn<T, F>
where
    Tx: Send,
    F: for<'a> Fn(&'a mut Tx, Event<T>, EventContext) -> BoxFuture<'a, Result<R, E>>
        + Send
        + Sync
        + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Serialize,
    E: Into<WorkError>,
{
    TransactionHandlerFn { function, data: PhantomData }
}

/// Made by [`transaction_fn`].
#[cfg(feature = "inbox")]
pub struct TransactionHandlerFn<T, F> {
    function: F,
    data: PhantomData<fn() -> T>,
}

#[cfg(feature = "inbox")]
impl<T, F> fmt::Debug for TransactionHandlerFn<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionHandlerFn")
    }
}

#[cfg(feature = "inbox")]
impl<Tx, T, R, E, F> Handler<Tx> for TransactionHandlerFn<T, F>
where
    Tx: Send,
    F: for<'a> Fn(&'a mut Tx, Event<T>, EventContext) -> BoxFuture<'a, Result<R, E>>
        + Send
        + Sync
        + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Serialize,
    E: Into<WorkError>,
{
    async fn handle(
        &self,
        tx: &mut Tx,
        event: Event,
        context: EventContext,
    ) -> Result<Outcome, WorkError> {
        let event = event.decode()?;
        let value = (self.function)(tx, event, context).await.map_err(Into::into)?;
        Ok(recorded(&value))
    }

    fn accepts(&self, _: &str) -> bool {
        true
    }
}

/// The value of a handler as the outcome that is recorded.
pub(crate) fn recorded<R: Serialize>(value: &R) -> Outcome {
    match Verdict::success(value) {
        Verdict::Final(outcome) => outcome,
        Verdict::NoEffect(_) | Verdict::Retry(_) | Verdict::Indeterminate(_) => {
            Outcome::success("")
        }
    }
}

/// An error that says when to try again. Return it inside of [`WorkError::retry`] or [`WorkError::no_effect`].
#[derive(Debug)]
pub struct RetryAfter {
    /// The least time until the next attempt.
    pub delay: Duration,
    /// What went wrong.
    pub error: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for RetryAfter {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
