//! Shows an outcome: its kind, and its content on request.

use semel::{Body, Header, Outcome};
use serde_json::{Value, json};

/// The kind of an outcome, with nothing of its content.
pub(super) fn summary(outcome: &Outcome) -> String {
    if outcome.is_sealed() {
        let how = if outcome.is_success() { "success" } else { "failure" };
        return format!("{how}, sealed: give the seal keys to see it (--seal-keys FILE)");
    }
    let how = match outcome.as_failure() {
        Some(failure) => format!("failure {}", failure.kind),
        None => "success".to_owned(),
    };
    let head = outcome.head();
    let status = head.and_then(|head| head.status).map(|status| status.to_string());
    let content = head.and_then(|head| head.content_type.clone());
    let body = match outcome.body() {
        Body::Kept(bytes) => format!("{} bytes", bytes.len()),
        Body::Omitted { length } => format!("{length} bytes, not kept"),
    };
    [Some(how), status, content, Some(body)].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The kind of an outcome, for programs.
pub(super) fn kind(outcome: &Outcome) -> Value {
    let (length, kept) = match outcome.body() {
        Body::Kept(bytes) => (bytes.len() as u64, true),
        Body::Omitted { length } => (*length, false),
    };
    json!({
        "success": outcome.is_success(),
        "failure": outcome.as_failure().map(|failure| &failure.kind),
        "status": outcome.head().and_then(|head| head.status),
        "content_type": outcome.head().and_then(|head| head.content_type.as_ref()),
        "body_bytes": length,
        "body_kept": kept,
    })
}

/// The whole outcome, for programs. Bytes that are not UTF-8 are written as hex digits.
pub(super) fn whole(outcome: &Outcome) -> Value {
    let mut value = kind(outcome);
    if let Some(failure) = outcome.as_failure() {
        value["message"] = json!(failure.message);
    }
    if let Some(head) = outcome.head() {
        value["headers"] = head.headers.iter().map(header).collect();
        value["trailers"] = head.trailers.iter().map(header).collect();
    }
    if let Body::Kept(bytes) = outcome.body() {
        let (name, body) = match str::from_utf8(bytes) {
            Ok(text) => ("body", text.to_owned()),
            Err(_) => ("body_hex", hex(bytes)),
        };
        value[name] = json!(body);
    }
    value
}

fn header(header: &Header) -> Value {
    json!([header.name, String::from_utf8_lossy(&header.value)])
}

/// The whole outcome, for people.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    if let Some(failure) = outcome.as_failure() {
        text += &format!("{}\n", super::plain(&failure.message));
    }
    let head = outcome.head();
    for header in head.iter().flat_map(|head| &head.headers) {
        let value = String::from_utf8_lossy(&header.value);
        text += &super::plain(&format!("{}: {value}", header.name));
        text.push('\n');
    }
    if let Body::Kept(bytes) = outcome.body() {
        text.push('\n');
        match str::from_utf8(bytes) {
            Ok(body) => body.lines().for_each(|line| text += &format!("{}\n", super::plain(line))),
            Err(_) => text += "(bytes that are not text; --json shows them as hex digits)\n",
        }
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use semel::Head;

    use super::*;

    #[test]
    fn a_summary_has_nothing_of_the_payload() {
        let head = Head {
            status: Some(201),
            headers: vec![Header { name: "x-card".into(), value: "4242".into() }],
            ..Head::default()
        };
        let outcome = Outcome::success("4242").with_head(head.clone());
        let failure = Outcome::failure("card_declined", "card 4242").with_head(head);
        for outcome in [&outcome, &failure] {
            let shown = format!("{} {}", summary(outcome), kind(outcome));
            assert!(!shown.contains("4242"), "{shown}");
            assert!(text(outcome).contains("4242") && whole(outcome).to_string().contains("4242"));
        }
        assert_eq!(summary(&outcome), "success, 201, 4 bytes");
        assert_eq!(summary(&failure), "failure card_declined, 201, 0 bytes");
        assert_eq!(whole(&Outcome::success(vec![0xff, 0x00]))["body_hex"], "ff00");
    }
}
