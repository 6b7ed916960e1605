//! The request for an event: the HTTP binding of CloudEvents 1.0, in binary mode.

use std::{borrow::Cow, fmt::Write};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use semel::{ErrorClass, WorkError, http::header::IDEMPOTENCY_KEY};
use semel_consumer::{Event, EventContext};
use semel_service::settings::HandlerUrl;

/// Which attempt at the event this is, counted from one.
const ATTEMPT: HeaderName = HeaderName::from_static("semel-attempt");
/// The fencing token of the attempt, for a handler that fences writes.
const TOKEN: HeaderName = HeaderName::from_static("semel-token");
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("semel-worker/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Makes the request for each event.
#[derive(Debug)]
pub(super) struct EventPost {
    uri: Uri,
    /// The CloudEvents source of messages that are no CloudEvents: a URI reference.
    source: String,
}

impl EventPost {
    pub(super) fn new(url: &HandlerUrl, source: &str) -> Self {
        // The name of a source is like `nats ORDERS/billing`, and a URI has no space.
        Self { uri: url.uri().clone(), source: source.replace(' ', ":") }
    }

    /// The request for `event`.
    pub(super) fn request(
        &self,
        event: &Event,
        context: &EventContext,
    ) -> Result<Request<Full<Bytes>>, WorkError> {
        let mut request = Request::new(Full::new(event.data.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        // hyper leaves it out for an empty body, and some servers wait for it, or answer with 411.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(event.data.len()));
        headers.insert(ATTEMPT, HeaderValue::from(context.attempt()));
        headers.insert(TOKEN, HeaderValue::from(context.token()));
        headers.insert(IDEMPOTENCY_KEY, encoded(context.downstream_key().as_ref()));
        self.describe(event, headers)?;
        Ok(request)
    }

    /// Adds the attributes of the event.
    fn describe(&self, event: &Event, headers: &mut HeaderMap) -> Result<(), WorkError> {
        let it = &*event.attributes;
        let is_cloud_event = it.id.is_some() && it.source.is_some();
        let (id, source, kind) = match (&it.id, &it.source) {
            (Some(id), Some(source)) => {
                (Cow::Borrowed(id.as_str()), source.as_str(), event.event_type())
            }
            _ => (event.event_id().unwrap_or_default(), self.source.as_str(), plain_type(event)),
        };
        headers.insert("ce-specversion", HeaderValue::from_static("1.0"));
        headers.insert("ce-id", encoded(&id));
        headers.insert("ce-source", encoded(source));
        headers.insert("ce-type", encoded(kind));
        for (name, value) in
            [("ce-subject", &it.subject), ("ce-time", &it.time), ("ce-dataschema", &it.data_schema)]
        {
            if let Some(value) = value {
                headers.insert(name, encoded(value));
            }
        }
        for (name, value) in &it.extensions {
            // CloudEvents allows lower-case letters and digits; a name that no header can have is left out.
            if let Ok(name) = HeaderName::try_from(format!("ce-{name}")) {
                headers.insert(name, encoded(value));
            }
        }
        match &it.content_type {
            Some(content_type) => {
                let value = HeaderValue::try_from(content_type.as_str());
                headers.insert(CONTENT_TYPE, value.map_err(|_| bad_content_type())?);
            }
            // A CloudEvent that declares nothing is JSON.
            None if is_cloud_event => {
                headers.insert(CONTENT_TYPE, JSON);
            }
            None => {}
        }
        Ok(())
    }
}

/// The type of a message that is no CloudEvent: what a header says, or its topic.
fn plain_type(event: &Event) -> &str {
    match event.event_type() {
        "" => event.message.topic.as_str(),
        event_type => event_type,
    }
}

fn bad_content_type() -> WorkError {
    let what = "the content type of the message cannot be a header of HTTP";
    WorkError::failure(ErrorClass::Validation.as_str(), what).class(ErrorClass::Validation)
}

/// The value of an attribute as a header: space, quotes, percent signs and what is not printable ASCII are
/// percent-encoded, as the binding requires.
fn encoded(value: &str) -> HeaderValue {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' | b'%' => escape(&mut text, byte),
            0x21..=0x7e => text.push(char::from(byte)),
            _ => escape(&mut text, byte),
        }
    }
    HeaderValue::try_from(text).expect("printable ASCII is a header value")
}

fn escape(text: &mut String, byte: u8) {
    let _ = write!(text, "%{byte:02X}");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use semel_consumer::Message;

    use super::*;

    fn headers(message: Message) -> Result<HeaderMap, WorkError> {
        let url: HandlerUrl = "http://127.0.0.1:1/events".parse().unwrap();
        let post = EventPost::new(&url, "nats ORDERS/billing");
        let event = Event::from_message(Arc::new(message)).unwrap();
        let mut headers = HeaderMap::new();
        post.describe(&event, &mut headers).map(|()| headers)
    }

    #[test]
    fn a_cloud_event_keeps_all_of_its_attributes() {
        let sent = [
            ("ce-specversion", "1.0"),
            ("ce-id", "e-1"),
            ("ce-source", "/shop"),
            ("ce-type", "order.placed"),
            ("ce-subject", "Euro%20%E2%82%AC%20%22%25%22"),
            ("ce-time", "2026-01-01T00:00:00Z"),
            ("ce-dataschema", "https://example.com/s"),
            ("ce-traceparent", "00-1-2-01"),
            ("content-type", "application/vnd.order+json"),
        ];
        let message = sent.iter().fold(Message::new("t", "{}"), |message, (name, value)| {
            message.with_header(*name, *value)
        });
        let headers = headers(message).unwrap();
        for (name, value) in sent {
            assert_eq!(headers[name], value, "{name}");
        }
        assert_eq!(headers.len(), sent.len());
    }

    #[test]
    fn a_message_that_is_no_cloud_event_gets_the_required_attributes() {
        let plain = Message::new("orders.new", "x")
            .with_id("m 1")
            .with_header("content-type", "text/plain");
        let sent = headers(plain.clone()).unwrap();
        assert_eq!(sent["ce-id"], "m%201");
        assert_eq!(sent["ce-source"], "nats:ORDERS/billing");
        assert_eq!(
            (&sent["ce-type"], &sent["content-type"]),
            (&HeaderValue::from_static("orders.new"), &HeaderValue::from_static("text/plain"))
        );
        let typed = headers(plain.with_header("event_type", "OrderPlaced")).unwrap();
        assert_eq!(typed["ce-type"], "OrderPlaced");
    }

    #[test]
    fn structured_data_without_a_type_is_json() {
        let body =
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","my ext":"x","data":1}"#;
        let message =
            Message::new("t", body).with_header("content-type", "application/cloudevents+json");
        let sent = headers(message).unwrap();
        assert_eq!(sent["content-type"], "application/json");
        assert_eq!(sent.len(), 5, "{sent:?}");
    }

    #[test]
    fn a_content_type_that_no_header_can_carry_is_a_final_failure() {
        let message = Message::new("t", "x").with_id("1").with_header("content-type", "a\nb");
        assert!(headers(message).unwrap_err().error().to_string().contains("content type"));
    }
}
