#![doc = include_str!("docs/crate.md")]

mod cloudevents;
mod consumer;
pub mod dead_letter;
mod event;
mod handler;
mod identity;
pub mod memory;
mod message;
pub mod pipeline;
mod reply;
mod request;
mod router;
mod runtime;
mod source;
pub mod telemetry;
pub mod testing;

#[cfg(feature = "inbox")]
pub use self::handler::{TransactionHandlerFn, transaction_fn};
pub use self::{
    consumer::{Consumer, ConsumerBuilder, Mode, OnDeadLetter, Order, Retention},
    event::{Event, EventAttributes},
    handler::{EventContext, Handler, HandlerFn, RetryAfter, handler_fn},
    identity::EVENT_ID_HEADER,
    message::Message,
    reply::reply_headers,
    request::{EventRequest, FailedAttempt, ProcessError, Processed, Refusal},
    router::Router,
    runtime::{ConsumerControl, ConsumerReport},
    source::{ConsumerPlan, Delivery, ExaminedSource, Settlement, Source, SourceInfo},
};
