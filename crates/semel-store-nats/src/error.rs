//! Driver and server errors into semel's, in one place. Nothing here prints an address or a password.

use async_nats::{PublishError, client::PublishErrorKind};
use semel_core::{Error, ErrorKind};

use crate::jetstream_api::ApiError;

/// What is to be done about a request that failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The key is not what it was expected to be; nothing happened.
    Conflict,
    /// The bucket takes no more; nothing happened.
    Full(Error),
    /// Asking again would not help.
    Refused(Error),
    /// There is no answer. It may have happened.
    Lost(Error),
    /// The server knows no such bucket now. Nobody knows what it would say.
    Absent(Error),
}

impl Trouble {
    /// As an answer to the caller, where nothing else can be done.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Conflict => overtaken(),
            Self::Full(error) | Self::Refused(error) | Self::Lost(error) | Self::Absent(error) => {
                error
            }
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

/// An error that the server answered with.
pub(crate) fn refused(error: &ApiError) -> Trouble {
    let ApiError { code, err_code, description } = error;
    match *err_code {
        WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_IN_FLIGHT => Trouble::Conflict,
        TTL_DISABLED => Trouble::Refused(unavailable(
            "nats: the bucket refuses per-key TTL; set allow_msg_ttl on its stream",
        )),
        TOO_LARGE => Trouble::Refused(Error::invalid(
            "nats: a record is larger than the bucket takes; raise max_value_size of the bucket",
        )),
        NOT_CLUSTERED => Trouble::Refused(Error::invalid(
            "nats: a server that is in no cluster keeps one copy; start three of them as a cluster, or ask \
             for one with ?replicas=1",
        )),
        // They may still be starting.
        NO_PEERS => Trouble::Lost(unavailable(format!(
            "nats: there are too few servers with JetStream for the bucket's copies ({description}); start \
             them, or ask for fewer with ?replicas="
        ))),
        NO_STREAM => Trouble::Absent(unavailable(
            "nats: the server knows no such bucket now; if it was deleted, restore it",
        )),
        _ if is_full(description) => Trouble::Full(full()),
        _ if *code >= 500 => Trouble::Lost(unavailable(format!(
            "nats: JetStream takes no writes now ({description}); look at its leader and its disk"
        ))),
        _ => Trouble::Refused(unavailable(format!("nats: the server answers: {description}"))),
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

/// An error of the driver, which did not send a request.
pub(crate) fn unsent(error: PublishError) -> Trouble {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => Trouble::Refused(Error::invalid(
            "nats: a record is larger than the server's max_payload; raise it",
        )),
        PublishErrorKind::InvalidSubject => {
            Trouble::Refused(unavailable("nats: the server does not take this subject"))
        }
        PublishErrorKind::Send => Trouble::Lost(
            unavailable("nats: the connection is lost; another is being opened").with_source(error),
        ),
    }
}

/// A request that nobody took.
pub(crate) fn unserved(error: Error) -> Trouble {
    match error.kind() {
        ErrorKind::Full => Trouble::Refused(error),
        _ => Trouble::Lost(error),
    }
}

pub(crate) fn no_responders() -> Error {
    unavailable(
        "nats: no JetStream answers for this bucket; is it enabled, and has the stream a leader?",
    )
}

pub(crate) fn timed_out() -> Error {
    unavailable("nats: no answer within the call timeout; it may have happened")
}

pub(crate) fn gave_up() -> Error {
    unavailable("nats: who sent a request is gone with its connection; it may have happened")
}

pub(crate) fn disconnected() -> Error {
    unavailable("nats: there is no connection; one is being opened")
}

pub(crate) fn overtaken() -> Error {
    unavailable("nats: the key changed again and again under this call; try again")
}

pub(crate) fn unsettled() -> Error {
    unavailable("nats: a reply was lost, and the key has changed since; it may have happened")
}

pub(crate) fn unavailable(subject: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, subject)
}

/// A reply that does not have the shape of an answer to what was asked.
pub(crate) fn odd_reply() -> Error {
    unavailable("nats: a reply is not an answer to what was asked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(code: u16, err_code: u16, description: &str) -> Trouble {
        refused(&ApiError { code, err_code, description: description.to_owned() })
    }

    #[test]
    fn what_may_be_tried_again_is_told_from_what_may_not() {
        assert!(matches!(trouble(400, 10_071, "wrong last sequence: 7"), Trouble::Conflict));
        assert!(matches!(trouble(400, 10_164, "wrong last sequence"), Trouble::Conflict));
        assert!(matches!(trouble(503, 10_077, "maximum bytes exceeded"), Trouble::Full(_)));
        assert!(matches!(trouble(503, 10_008, "temporarily unavailable"), Trouble::Lost(_)));
        assert!(matches!(trouble(404, 10_059, "stream not found"), Trouble::Absent(_)));
        assert!(matches!(trouble(400, 10_166, "disabled"), Trouble::Refused(_)));
    }
}
