//! Maps errors of the driver and the server to semel's errors. No error text contains an address or a password.

use async_nats::{ConnectError, RequestErrorKind};
use semel_core::{Error, ErrorKind};
use serde::Deserialize;

/// Why the server refused a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    pub(crate) err_code: u16,
    pub(crate) description: String,
}

/// Why a request to JetStream failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The server refused it. Nothing happened.
    Refused(ApiError),
    /// Nothing listens on its subject. Nothing happened.
    NoResponders,
    /// There is no reply. The request may have been executed, unless the error is about the request itself.
    NoReply(Error),
}

pub(crate) const NO_STREAM: u16 = 10_059;
pub(crate) const NO_CONSUMER: u16 = 10_014;
pub(crate) const NO_MESSAGE: u16 = 10_037;
pub(crate) const CONSUMER_EXISTS: u16 = 10_148;
const NOT_FOR_ACCOUNT: u16 = 10_039;
const NOT_ENABLED: u16 = 10_076;
const WRONG_STREAM: u16 = 10_060;
const TOO_LARGE: u16 = 10_054;
const TTL_DISABLED: u16 = 10_166;
/// A deletion of a message that does not exist.
const NO_SUCH_SEQUENCE: u16 = 10_043;

impl RequestError {
    /// True if the server refused the request with this code.
    pub(crate) fn is(&self, err_code: u16) -> bool {
        matches!(self, Self::Refused(error) if error.err_code == err_code)
    }

    /// True if there is no message with the requested sequence or subject.
    pub(crate) fn is_no_message(&self) -> bool {
        self.is(NO_MESSAGE)
            || matches!(self, Self::Refused(error) if error.err_code == NO_SUCH_SEQUENCE)
            || matches!(self, Self::Refused(error) if error.description.contains("no message found"))
    }

    /// The error for the caller. `subject` is the part of the broker that it is about, such as `stream ORDERS`.
    pub(crate) fn about(self, subject: &str) -> Error {
        match self {
            Self::NoReply(error) => error,
            Self::NoResponders => no_responders(),
            Self::Refused(error) => refused(&error, subject),
        }
    }
}

fn refused(error: &ApiError, subject: &str) -> Error {
    let description = &error.description;
    match error.err_code {
        NO_STREAM => {
            Error::invalid(format!("nats: {subject} does not exist; make it, or correct its name"))
        }
        NO_CONSUMER => Error::invalid(format!("nats: {subject} does not exist; make it")),
        NOT_FOR_ACCOUNT => Error::invalid(
            "nats: JetStream is not enabled for the account of this user; enable it, or use another user",
        ),
        NOT_ENABLED => Error::invalid("nats: the server runs without JetStream; start it with -js"),
        WRONG_STREAM => Error::invalid(format!(
            "nats: {subject} does not capture this subject, but another stream does; correct the URL"
        )),
        TOO_LARGE => Error::invalid(format!(
            "nats: the message is larger than {subject} takes; raise its max_msg_size"
        )),
        TTL_DISABLED => {
            Error::invalid(format!("nats: {subject} refuses per-message TTL; set allow_msg_ttl"))
        }
        _ if is_full(description) => Error::new(
            ErrorKind::Full,
            format!("nats: {subject} is full; raise its max_bytes or max_msgs, or remove messages"),
        ),
        _ if error.code >= 500 => unavailable(format!(
            "nats: JetStream cannot serve {subject} now ({description}); look at its leader and its disk"
        )),
        _ => Error::invalid(format!("nats: {subject}: the server answers: {description}")),
    }
}

fn is_full(description: &str) -> bool {
    ["maximum bytes", "maximum messages", "resource limits exceeded", "insufficient storage"]
        .iter()
        .any(|full| description.contains(full))
}

impl From<async_nats::RequestError> for RequestError {
    fn from(error: async_nats::RequestError) -> Self {
        match error.kind() {
            RequestErrorKind::NoResponders => Self::NoResponders,
            RequestErrorKind::TimedOut => Self::NoReply(timed_out()),
            RequestErrorKind::InvalidSubject => {
                Self::NoReply(Error::invalid("nats: the subject is not one"))
            }
            RequestErrorKind::MaxPayloadExceeded => Self::NoReply(too_large()),
            RequestErrorKind::Other => Self::NoReply(connection_lost().with_source(error)),
        }
    }
}

/// A message that was not published.
pub(crate) fn not_published(error: async_nats::PublishError) -> Error {
    use async_nats::client::PublishErrorKind::{InvalidSubject, MaxPayloadExceeded, Send};
    match error.kind() {
        InvalidSubject => Error::invalid("nats: the subject is not one"),
        MaxPayloadExceeded => too_large(),
        Send => connection_lost().with_source(error),
    }
}

/// A connection that was not opened.
pub(crate) fn unreachable(error: ConnectError) -> Error {
    use async_nats::ConnectErrorKind::{
        Authentication, AuthorizationViolation, Dns, Io, MaxReconnects, ServerParse, TimedOut, Tls,
    };
    match error.kind() {
        Authentication | AuthorizationViolation => unavailable(
            "nats: user or password is not accepted; put them into the URL as USER:PASSWORD@",
        ),
        Tls => unavailable(
            "nats: no TLS connection; use nats+tls:// and name the authority with ?ca=FILE",
        )
        .with_source(error),
        ServerParse | Dns | TimedOut | Io | MaxReconnects => {
            unavailable("nats: no server can be reached; check host and port").with_source(error)
        }
    }
}

pub(crate) fn not_connected_in_time() -> Error {
    unavailable("nats: no server answered in time; check host and port")
}

pub(crate) fn connection_lost() -> Error {
    unavailable("nats: there is no connection; one is being opened")
}

pub(crate) fn timed_out() -> Error {
    unavailable(
        "nats: no reply in time; is JetStream healthy, and may this user publish to $JS.API.> and $JS.ACK.>, and \
         subscribe to _INBOX.>?",
    )
}

pub(crate) fn no_responders() -> Error {
    unavailable(
        "nats: no JetStream answers; is it enabled for this account, is the domain right, and have stream and \
         consumer a leader?",
    )
}

pub(crate) fn no_stream(stream: &str) -> Error {
    Error::invalid(format!(
        "nats: there is no stream {stream}; make it (nats stream add {stream}), or correct its name (nats stream ls)"
    ))
}

pub(crate) fn no_consumer(stream: &str, consumer: &str) -> Error {
    Error::invalid(format!(
        "nats: stream {stream} has no consumer {consumer}; make it (nats consumer add {stream} {consumer} --pull), or \
         ask for a new one with ?create=true"
    ))
}

pub(crate) fn pushes() -> Error {
    Error::invalid(
        "nats: the consumer pushes its messages; name a pull consumer, without a delivery subject",
    )
}

/// No stream has answered a publish.
pub(crate) fn not_captured(subject: &str) -> Error {
    unavailable(format!(
        "nats: no stream stores messages to {subject}; add the subject to a stream, or start JetStream"
    ))
}

pub(crate) fn too_large() -> Error {
    Error::invalid("nats: the message is larger than the server's max_payload; raise it")
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "nats: the connection is closed")
}

pub(crate) fn unavailable(subject: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, subject)
}

/// A reply whose shape does not fit its request.
pub(crate) fn unexpected_reply() -> Error {
    unavailable("nats: a reply does not fit its request")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u16, err_code: u16, description: &str) -> ErrorKind {
        let error = ApiError { code, err_code, description: description.to_owned() };
        RequestError::Refused(error).about("stream ORDERS").kind()
    }

    #[test]
    fn error_codes_decide_whether_a_request_may_be_repeated() {
        assert_eq!(kind(404, 10_059, "stream not found"), ErrorKind::Invalid);
        assert_eq!(kind(503, 10_077, "maximum bytes exceeded"), ErrorKind::Full);
        assert_eq!(kind(503, 10_008, "temporarily unavailable"), ErrorKind::Unavailable);
        assert_eq!(kind(400, 10_060, "expected stream does not match"), ErrorKind::Invalid);
        let missing = ApiError { code: 404, err_code: NO_MESSAGE, description: String::new() };
        assert!(RequestError::Refused(missing).is_no_message());
    }
}
