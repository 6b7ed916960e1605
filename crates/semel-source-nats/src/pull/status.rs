//! What the server says about a request, in messages without an acknowledgement subject.

use async_nats::{Message, StatusCode};
use semel_core::Error;

use crate::{ack_subject::DeliveryInfo, error};

/// What the server says about a request.
#[derive(Debug)]
pub(super) enum Status {
    /// It still waits.
    Heartbeat,
    /// It is over, and another can be sent.
    Ended,
    /// Other requests wait for more messages than there are.
    RequestsPending,
    /// There is no consumer that could serve it.
    NoConsumer,
    /// Another one would be refused, too.
    Refused(Error),
}

/// `None` for a message of the stream, whose producer may have put a status into its headers, too.
pub(super) fn status_of(message: &Message) -> Option<Status> {
    if message.reply.as_ref().is_some_and(|reply| DeliveryInfo::parse(reply).is_some()) {
        return None;
    }
    let description = message.description.as_deref().unwrap_or_default();
    // A message that has neither is none that could be settled.
    Some(message.status.map_or(Status::Heartbeat, |code| status(code, description)))
}

fn status(code: StatusCode, description: &str) -> Status {
    const BAD_REQUEST: u16 = 400;
    match code {
        StatusCode::IDLE_HEARTBEAT => Status::Heartbeat,
        StatusCode::NO_RESPONDERS => Status::NoConsumer,
        StatusCode::TIMEOUT if description == "Requests Pending" => Status::RequestsPending,
        StatusCode::TIMEOUT | StatusCode::NOT_FOUND => Status::Ended,
        StatusCode::REQUEST_TERMINATED => terminated(description),
        code if code.as_u16() == BAD_REQUEST => Status::Refused(Error::invalid(format!(
            "nats: the consumer refuses requests for messages: {description}"
        ))),
        code => Status::Refused(error::unavailable(format!(
            "nats: a request for messages was ended: {code} {description}"
        ))),
    }
}

fn terminated(description: &str) -> Status {
    match description {
        // The leader moves; the next request finds the new one.
        "Leadership Change" | "Server Shutdown" | "Batch Completed" => Status::Ended,
        "Consumer Deleted" => Status::NoConsumer,
        "Consumer is push based" => Status::Refused(error::pushes()),
        "Exceeded MaxWaiting" => Status::Refused(error::unavailable(
            "nats: too many requests wait at the consumer; raise its max_waiting, or run fewer workers",
        )),
        // Its limits were lowered after this source was opened.
        _ if description.starts_with("Exceeded MaxRequest") => {
            Status::Refused(Error::invalid(format!(
                "nats: the consumer's limits have changed ({description}); start the worker again"
            )))
        }
        _ => Status::Refused(error::unavailable(format!(
            "nats: a request for messages was ended: {description}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_decides_about_the_next_request() {
        let of = |code: u16, description| status(StatusCode::from_u16(code).unwrap(), description);
        assert!(matches!(of(100, "Idle Heartbeat"), Status::Heartbeat));
        assert!(matches!(of(408, "Request Timeout"), Status::Ended));
        assert!(matches!(of(408, "Requests Pending"), Status::RequestsPending));
        assert!(matches!(of(404, "No Messages"), Status::Ended));
        assert!(matches!(of(409, "Leadership Change"), Status::Ended));
        assert!(matches!(of(409, "Consumer Deleted"), Status::NoConsumer));
        assert!(matches!(of(503, ""), Status::NoConsumer));
        let refused = |code, description| match of(code, description) {
            Status::Refused(error) => error.to_string(),
            status => panic!("{status:?}"),
        };
        assert!(refused(409, "Exceeded MaxWaiting").contains("max_waiting"));
        assert!(refused(409, "Exceeded MaxRequestBatch of 3").contains("MaxRequestBatch of 3"));
        assert!(refused(400, "Bad Request - Priority Group missing").contains("Priority Group"));
        assert!(refused(423, "Nats-Pin-Id mismatch").contains("423"));
    }
}
