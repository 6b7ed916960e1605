//! The events of the benchmark: CloudEvents in binary mode with 300 bytes of JSON.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use semel_consumer::{Event, EventContext, Message};
use semel_core::WorkError;
use serde::Deserialize;

/// The data of an event.
#[derive(Debug, Deserialize)]
pub struct OrderPlaced {
    /// The id of the order.
    #[serde(rename = "orderId")]
    pub order_id: String,
    cents: u64,
}

/// Attributes of a CloudEvent as headers.
pub fn headers(id: u64) -> [(&'static str, String); 5] {
    [
        ("ce-specversion", "1.0".to_owned()),
        ("ce-id", format!("event-{id}")),
        ("ce-source", "/shop/orders".to_owned()),
        ("ce-type", "OrderPlaced".to_owned()),
        ("content-type", "application/json".to_owned()),
    ]
}

/// The data of an event, 300 bytes.
pub fn body(id: u64) -> String {
    let body = format!(r#"{{"orderId":"order-{id:012}","cents":500,"note":""#);
    let note = "x".repeat(300 - body.len() - 2);
    format!("{body}{note}\"}}")
}

/// An event as a message.
pub fn message(id: u64) -> Message {
    let message = Message::new("orders", body(id));
    headers(id).into_iter().fold(message, |message, (name, value)| message.with_header(name, value))
}

/// A handler that reads the event, and counts.
pub fn counting(
    handled: &Arc<AtomicU64>,
) -> impl Fn(Event<OrderPlaced>, EventContext) -> std::future::Ready<Result<u64, WorkError>> + use<>
{
    let handled = handled.clone();
    move |event, _| {
        let read = event.data.order_id.len() as u64 + event.data.cents;
        handled.fetch_add(1, Relaxed);
        std::future::ready(Ok(read))
    }
}
