//! An event: a message whose attributes are known and whose data may have a type.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use semel_core::{ErrorClass, WorkError};
use serde::de::DeserializeOwned;

use crate::message::Message;

/// An event that a handler gets. `T` is the type of its data; bytes until it is read.
#[derive(Clone)]
pub struct Event<T = Bytes> {
    /// What the event says about itself.
    pub attributes: Arc<EventAttributes>,
    /// The payload.
    pub data: T,
    /// The message that carried the event.
    pub message: Arc<Message>,
}

/// The attributes of an event, by the names of CloudEvents 1.0. A message that is no CloudEvent has those that its
/// headers `event_type`, `event_time` and `content-type` say.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EventAttributes {
    /// The CloudEvents `id`, which is unique together with `source`.
    pub id: Option<String>,
    /// The CloudEvents `source`.
    pub source: Option<String>,
    /// The kind of event, such as `UserRegistered`.
    pub event_type: Option<String>,
    /// What the event is about, within its source.
    pub subject: Option<String>,
    /// When it happened, by the producer's clock, in RFC 3339.
    pub time: Option<String>,
    /// The media type of the data.
    pub content_type: Option<String>,
    /// The schema of the data.
    pub data_schema: Option<String>,
    /// Extension attributes, name and value.
    pub extensions: Vec<(String, String)>,
}

impl EventAttributes {
    /// The value of an extension attribute.
    #[must_use]
    pub fn extension(&self, name: &str) -> Option<&str> {
        let extension = self.extensions.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
        extension.map(|(_, value)| value.as_str())
    }

    /// True if the data is declared to be JSON. A CloudEvent that declares nothing is JSON, too.
    #[must_use]
    pub fn is_json(&self) -> bool {
        match &self.content_type {
            Some(content_type) => is_json(content_type),
            None => self.id.is_some(),
        }
    }
}

pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.eq_ignore_ascii_case("text/json")
        || essence.to_ascii_lowercase().ends_with("+json")
}

impl Event {
    /// The same event with its data read from JSON.
    ///
    /// # Errors
    ///
    /// A final failure of the class validation: the same bytes never become readable. Its text names the place, not
    /// the payload.
    pub fn decode<T: DeserializeOwned>(self) -> Result<Event<T>, WorkError> {
        let Self { attributes, data, message } = self;
        match serde_json::from_slice(&data) {
            Ok(data) => Ok(Event { attributes, data, message }),
            Err(error) => Err(unreadable::<T>(&error)),
        }
    }
}

/// The decoder's own message may quote the payload.
fn unreadable<T>(error: &serde_json::Error) -> WorkError {
    let name = std::any::type_name::<T>();
    let name = name.rsplit("::").next().unwrap_or(name);
    let problem = match error.classify() {
        serde_json::error::Category::Data => "JSON of another shape",
        serde_json::error::Category::Syntax => "not JSON",
        serde_json::error::Category::Eof => "JSON that is cut off",
        serde_json::error::Category::Io => "not readable",
    };
    let (line, column) = (error.line(), error.column());
    let what = format!("the data is no {name}: it is {problem} (line {line}, column {column})");
    WorkError::failure(ErrorClass::Validation.as_str(), what).class(ErrorClass::Validation)
}

impl<T> Event<T> {
    /// The kind of event; empty if the message does not say.
    #[must_use]
    pub fn event_type(&self) -> &str {
        self.attributes.event_type.as_deref().unwrap_or_default()
    }

    /// The key within which order is kept: that of the broker, or the CloudEvents extension `partitionkey`.
    #[must_use]
    pub fn ordering_key(&self) -> Option<&str> {
        let of_broker = self.message.ordering_key.as_deref();
        of_broker
            .or_else(|| self.attributes.extension("partitionkey"))
            .filter(|key| !key.is_empty())
    }
}

/// Without data and attributes, which stay out of logs.
impl<T> fmt::Debug for Event<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("message", &self.message).finish_non_exhaustive()
    }
}

impl fmt::Debug for EventAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventAttributes([redacted])")
    }
}
