//! What a reply to a message says besides the outcome's body.

use semel_core::{Body, Header, Outcome};

use crate::message::Message;

/// The headers of a reply to `message` with its recorded outcome: `Semel-Status` (`success` or `failure`),
/// `Semel-Failure-Kind`, `Semel-Failure-Message`, `Content-Type`, `Semel-In-Reply-To` (the id of the message) and, if
/// the body was not kept, `Semel-Body-Omitted` with its length. Each value is one line.
#[must_use]
pub fn reply_headers(message: &Message, outcome: &Outcome) -> Vec<Header> {
    let mut headers = Vec::new();
    let mut set = |name: &str, value: &str| {
        let line = value.replace(|c: char| c.is_control(), " ").trim().to_owned();
        headers.push(Header { name: name.to_owned(), value: line.into() });
    };
    match outcome.as_failure() {
        None => set("Semel-Status", "success"),
        Some(failure) => {
            set("Semel-Status", "failure");
            set("Semel-Failure-Kind", &failure.kind);
            set("Semel-Failure-Message", &failure.message);
        }
    }
    if let Some(content_type) = outcome.head().and_then(|head| head.content_type.as_deref()) {
        set("Content-Type", content_type);
    }
    if let Some(id) = &message.message_id {
        set("Semel-In-Reply-To", id);
    }
    if let Body::Omitted { length } = outcome.body() {
        set("Semel-Body-Omitted", &length.to_string());
    }
    headers
}

#[cfg(test)]
mod tests {
    use semel_core::Head;

    use super::*;

    fn text(headers: &[Header]) -> Vec<(&str, &str)> {
        let text = |it| std::str::from_utf8(it).unwrap();
        headers.iter().map(|it| (it.name.as_str(), text(&it.value))).collect()
    }

    #[test]
    fn the_headers_say_what_the_outcome_is() {
        let message = Message::new("orders", "x").with_id("m-1");
        let head = Head { content_type: Some("application/json".into()), ..Head::default() };
        let success = reply_headers(&message, &Outcome::success("{}").with_head(head));
        assert_eq!(
            text(&success),
            [
                ("Semel-Status", "success"),
                ("Content-Type", "application/json"),
                ("Semel-In-Reply-To", "m-1")
            ]
        );
        let failure = reply_headers(&message, &Outcome::failure("declined", "no\r\nmoney"));
        assert_eq!(
            text(&failure),
            [
                ("Semel-Status", "failure"),
                ("Semel-Failure-Kind", "declined"),
                ("Semel-Failure-Message", "no  money"),
                ("Semel-In-Reply-To", "m-1")
            ]
        );
    }
}
