//! Maps errors of the driver and the server to semel's errors. No error text contains an address or a password.

use async_nats::{PublishError, client::PublishErrorKind};
use semel_core::{Error, ErrorKind};

use crate::jetstream_api::ApiError;

/// Why a request failed, and whether it may have been executed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The key does not have the expected revision. Nothing was written.
    Conflict,
    /// The bucket is full. Nothing was written.
    Full(Error),
    /// The same request would fail again.
    Refused(Error),
    /// There is no reply. The request may have been executed.
    Unacknowledged(Error),
    /// The server does not know the bucket now, so the state of the key is unknown.
    NoBucket(Error),
}

impl RequestError {
    /// The error for the caller, if nothing else can be done.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Conflict => overtaken(),
            Self::Full(error)
            | Self::Refused(error)
            | Self::Unacknowledged(error)
            | Self::NoBucket(error) => error,
        }
    }
}

const WRONG_LAST_SEQUENCE: u16 = 10_071;
const WRONG_LAST_SEQUENCE_IN_FLIGHT: u16 = 10_164;
const TTL_DISABLED: u16 = 10_166;
const TOO_LARGE: u16 = 10_054;
const NOT_CLUSTERED: u16 = 10_074;
const NO_PEERS: u16 = 10_005;
pub(crate) const NO_STREAM: u16 = 10_059;
pub(crate) const NO_MESSAGE: u16 = 10_037;

/// An error reply of the server.
pub(crate) fn classify(error: &ApiError) -> RequestError {
    let ApiError { code, err_code, description } = error;
    match *err_code {
        WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_IN_FLIGHT => RequestError::Conflict,
        TTL_DISABLED => RequestError::Refused(unavailable(
            "nats: the bucket refuses per-key TTL; set allow_msg_ttl on its stream",
        )),
        TOO_LARGE => RequestError::Refused(Error::invalid(
            "nats: a record is larger than the bucket takes; raise max_value_size of the bucket",
        )),
        NOT_CLUSTERED => RequestError::Refused(Error::invalid(
            "nats: a server that is in no cluster keeps one copy; start three of them as a cluster, or ask \
             for one with ?replicas=1",
        )),
        // The servers may still be starting.
        NO_PEERS => RequestError::Unacknowledged(unavailable(format!(
            "nats: there are too few servers with JetStream for the bucket's copies ({description}); start \
             them, or ask for fewer with ?replicas="
        ))),
        NO_STREAM => RequestError::NoBucket(unavailable(
            "nats: the server knows no such bucket now; if it was deleted, restore it",
        )),
        _ if is_full(description) => RequestError::Full(full()),
        _ if *code >= 500 => RequestError::Unacknowledged(unavailable(format!(
            "nats: JetStream takes no writes now ({description}); look at its leader and its disk"
        ))),
        _ => RequestError::Refused(unavailable(format!("nats: the server answers: {description}"))),
    }
}

pub(crate) fn full() -> Error {
    Error::new(
        ErrorKind::Full,
        "nats: the bucket is full, or has room only for what is claimed; raise its max_bytes, its max_msgs or the \
         account's limits, or shorten the retention",
    )
}

fn is_full(description: &str) -> bool {
    ["maximum bytes", "maximum messages", "resource limits exceeded", "insufficient storage"]
        .iter()
        .any(|full| description.contains(full))
}

/// An error of the driver: it did not send the request.
pub(crate) fn unsent(error: PublishError) -> RequestError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => RequestError::Refused(Error::invalid(
            "nats: a record is larger than the server's max_payload; raise it",
        )),
        PublishErrorKind::InvalidSubject => {
            RequestError::Refused(unavailable("nats: the server does not take this subject"))
        }
        PublishErrorKind::Send => RequestError::Unacknowledged(
            unavailable("nats: the connection is lost; another is being opened").with_source(error),
        ),
    }
}

/// A request that was not taken from the queue.
pub(crate) fn not_sent(error: Error) -> RequestError {
    match error.kind() {
        ErrorKind::Full => RequestError::Refused(error),
        _ => RequestError::Unacknowledged(error),
    }
}

pub(crate) fn no_responders() -> Error {
    unavailable(
        "nats: no JetStream answers for this bucket; is it enabled, and has the stream a leader?",
    )
}

pub(crate) fn timed_out() -> Error {
    unavailable("nats: no reply within the call timeout; the request may have been executed")
}

pub(crate) fn sender_gone() -> Error {
    unavailable("nats: the connection's runtime shut down; the request may have been executed")
}

pub(crate) fn disconnected() -> Error {
    unavailable("nats: there is no connection; one is being opened")
}

pub(crate) fn overtaken() -> Error {
    unavailable("nats: other requests kept changing the key during this call; try again")
}

pub(crate) fn unknown_result() -> Error {
    unavailable(
        "nats: a reply was lost, and the key has changed since; the request may have been executed",
    )
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

    fn classified(code: u16, err_code: u16, description: &str) -> RequestError {
        classify(&ApiError { code, err_code, description: description.to_owned() })
    }

    #[test]
    fn error_codes_decide_whether_a_request_may_be_repeated() {
        assert!(matches!(
            classified(400, 10_071, "wrong last sequence: 7"),
            RequestError::Conflict
        ));
        assert!(matches!(classified(400, 10_164, "wrong last sequence"), RequestError::Conflict));
        assert!(matches!(classified(503, 10_077, "maximum bytes exceeded"), RequestError::Full(_)));
        assert!(matches!(
            classified(503, 10_008, "temporarily unavailable"),
            RequestError::Unacknowledged(_)
        ));
        assert!(matches!(classified(404, 10_059, "stream not found"), RequestError::NoBucket(_)));
        assert!(matches!(classified(400, 10_166, "disabled"), RequestError::Refused(_)));
    }
}
