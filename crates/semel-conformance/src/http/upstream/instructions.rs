//! The instructions for the upstream in the headers of a request. Headers are in no fingerprint, so a first request
//! and its retry may have different instructions.

use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The `Test-*` headers, by name.
pub(crate) mod header {
    /// The case whose runs are counted. Required on every request.
    pub(crate) const CASE: &str = "test-case";
    /// The status to answer with; 200 if left out.
    pub(crate) const STATUS: &str = "test-status";
    /// `numbered` (differs on every run; the default), `empty`, `binary`, or `big:BYTES`.
    pub(crate) const BODY: &str = "test-body";
    /// `name: value` to answer with. It may be repeated.
    pub(crate) const HEADER: &str = "test-header";
    /// A name to answer with, and a value that is not UTF-8.
    pub(crate) const LATIN1: &str = "test-latin1";
    /// `name: value` to send after the body.
    pub(crate) const TRAILER: &str = "test-trailer";
    /// The gate to wait at before answering.
    pub(crate) const GATE: &str = "test-gate";
    /// Panic instead of answering.
    pub(crate) const PANIC: &str = "test-panic";
    /// How many server-sent events to answer with.
    pub(crate) const STREAM: &str = "test-stream";
    /// The gate whose every opening lets one more event pass after the first.
    pub(crate) const STEP: &str = "test-step";
    /// Break off half-way through the body.
    pub(crate) const BREAK: &str = "test-break";
}

/// The value that [`header::LATIN1`] answers with: an é that is no UTF-8.
pub(crate) const LATIN1_VALUE: &[u8] = b"caf\xe9";

pub(super) enum BodyContent {
    Numbered,
    Empty,
    Binary,
    Big(usize),
    Events(usize),
}

pub(super) struct UpstreamInstructions {
    pub(super) case: String,
    pub(super) status: StatusCode,
    pub(super) content: BodyContent,
    pub(super) headers: HeaderMap,
    pub(super) trailers: HeaderMap,
    pub(super) gate: Option<String>,
    /// The gate whose every opening lets one more piece of the body pass.
    pub(super) piece_gate: Option<String>,
    pub(super) panics: bool,
    pub(super) breaks: bool,
}

impl UpstreamInstructions {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| text(headers, name);
        Self {
            case: text(header::CASE).expect("the target passes Test-* headers on"),
            status: text(header::STATUS).map_or(StatusCode::OK, |status| parsed(&status)),
            content: BodyContent::of(headers),
            headers: answered(headers),
            trailers: fields(headers, header::TRAILER),
            gate: text(header::GATE),
            piece_gate: text(header::STEP),
            panics: headers.contains_key(header::PANIC),
            breaks: headers.contains_key(header::BREAK),
        }
    }
}

impl BodyContent {
    fn of(headers: &HeaderMap) -> Self {
        if let Some(events) = text(headers, header::STREAM) {
            return Self::Events(parsed(&events));
        }
        match text(headers, header::BODY).as_deref() {
            None | Some("numbered") => Self::Numbered,
            Some("empty") => Self::Empty,
            Some("binary") => Self::Binary,
            Some(other) => Self::Big(parsed(
                other.strip_prefix("big:").expect("a body that the suite defines"),
            )),
        }
    }
}

fn answered(headers: &HeaderMap) -> HeaderMap {
    let mut answered = fields(headers, header::HEADER);
    if headers.contains_key(header::STREAM) {
        let events = HeaderValue::from_static("text/event-stream");
        answered.insert(http::header::CONTENT_TYPE, events);
    }
    for name in headers.get_all(header::LATIN1) {
        let value = HeaderValue::from_bytes(LATIN1_VALUE).expect("obs-text may be sent");
        answered.append(named(name.as_bytes()), value);
    }
    // HTTP/1 sends no trailer that was not announced.
    for name in fields(headers, header::TRAILER).keys() {
        answered.append(http::header::TRAILER, name.clone().into());
    }
    answered
}

fn fields(headers: &HeaderMap, order: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in headers.get_all(order) {
        let (name, value) = field(line.as_bytes());
        fields.append(name, value);
    }
    fields
}

fn field(line: &[u8]) -> (HeaderName, HeaderValue) {
    let colon = line.iter().position(|byte| *byte == b':').expect("`name: value`");
    let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
    (named(&line[..colon]), value.expect("a part of a header value is one"))
}

fn named(name: &[u8]) -> HeaderName {
    HeaderName::from_bytes(name).expect("the suite writes valid header names")
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?;
    Some(value.to_str().expect("the suite writes its instructions in ASCII").to_owned())
}

fn parsed<T: FromStr>(text: &str) -> T {
    text.parse().ok().expect("the suite writes valid numbers")
}
