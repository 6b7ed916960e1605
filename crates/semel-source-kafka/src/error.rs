//! Maps errors of the driver and the brokers to semel's errors. No error text contains an address, a setting's value
//! or a password.

use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};
use semel_core::{Error, ErrorKind};

/// The error for the caller. `subject` is the part of the cluster that it is about, such as `topic orders`.
pub(crate) fn about(subject: &str, error: &KafkaError) -> Error {
    match error {
        // The driver's own text may quote the value.
        KafkaError::ClientConfig(_, _, name, _) => Error::invalid(format!(
            "kafka: librdkafka does not accept the setting {name:?}; correct or remove it"
        )),
        error => match code(error) {
            Some(code) => of_code(subject, code),
            None => unavailable(format!("kafka: {subject}: the driver failed; see the log")),
        },
    }
}

/// The code of an error, if it has one.
pub(crate) fn code(error: &KafkaError) -> Option<Code> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// The error for a code of the driver or a broker.
pub(crate) fn of_code(subject: &str, code: Code) -> Error {
    let error = match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Error::invalid(format!("kafka: {subject} does not exist; make it, or correct its name"))
        }
        Code::Authentication | Code::SaslAuthenticationFailed => Error::invalid(
            "kafka: the cluster refuses the login; correct USER:PASSWORD@ or sasl.mechanism in the URL",
        ),
        Code::SSL => Error::invalid(
            "kafka: no TLS connection; check that the port is a TLS listener, and name its authority with ?ca=FILE",
        ),
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => Error::invalid(format!(
            "kafka: this user may not use {subject}; allow it with an ACL, or use another user"
        )),
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => Error::invalid(format!(
            "kafka: the message is larger than {subject} takes; raise its max.message.bytes"
        )),
        Code::PolicyViolation | Code::InvalidRecord => Error::invalid(format!(
            "kafka: {subject} refuses the message; look at the topic's settings"
        )),
        Code::QueueFull => Error::new(
            ErrorKind::Full,
            "kafka: too many messages wait to be sent; the brokers do not keep up",
        ),
        code => unavailable(format!("kafka: {subject}: {code}")),
    };
    error.with_source(code)
}

/// A topic that does not exist.
pub(crate) fn no_topic(name: &str) -> Error {
    let what = format!("kafka: there is no topic {name}; make it, or correct its name");
    Error::invalid(what).with_source(Code::UnknownTopicOrPartition)
}

/// True for [`no_topic`].
pub(crate) fn is_missing(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|it| it.downcast_ref::<Code>());
    source == Some(&Code::UnknownTopicOrPartition)
}

/// True for an error of one topic or message, which no broker and no later connection takes. Not for one of the login or
/// of TLS: the driver reports those for a connection that was interrupted, too.
pub(crate) fn is_of_the_message(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|it| it.downcast_ref::<Code>());
    matches!(
        source,
        Some(
            Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::UnknownPartition
                | Code::InvalidTopic
                | Code::TopicAuthorizationFailed
                | Code::MessageSizeTooLarge
                | Code::InvalidMessageSize
                | Code::PolicyViolation
                | Code::InvalidRecord
        )
    )
}

pub(crate) fn unreachable() -> Error {
    unavailable(
        "kafka: no broker answers; check the addresses, and that the brokers run".to_owned(),
    )
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "kafka: the source is closed")
}

/// The driver's consumer cannot be used any more.
pub(crate) fn ended(why: &Error) -> Error {
    let what = format!("{why}; this consumer receives nothing more, and has to be restarted");
    Error::new(ErrorKind::Closed, what).with_source(why.clone())
}

/// The thread that fetches records has ended, and nothing starts it again.
pub(crate) fn thread_ended() -> Error {
    Error::new(
        ErrorKind::Closed,
        "kafka: the thread that fetches records has ended; the log says why. Restart the consumer",
    )
}

pub(crate) fn revoked(position: &str) -> Error {
    unavailable(format!(
        "kafka: {position}: the partition belongs to another consumer of the group by now, which gets the message again"
    ))
}

pub(crate) fn no_thread(error: std::io::Error) -> Error {
    unavailable("kafka: cannot start a thread".to_owned()).with_source(error)
}

pub(crate) fn unavailable(what: String) -> Error {
    Error::new(ErrorKind::Unavailable, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_trying_again_helps() {
        let kind = |code| of_code("topic t", code).kind();
        assert_eq!(kind(Code::BrokerTransportFailure), ErrorKind::Unavailable);
        assert_eq!(kind(Code::NotCoordinator), ErrorKind::Unavailable);
        assert_eq!(kind(Code::UnknownTopicOrPartition), ErrorKind::Invalid);
        assert_eq!(kind(Code::TopicAuthorizationFailed), ErrorKind::Invalid);
        assert_eq!(kind(Code::MessageSizeTooLarge), ErrorKind::Invalid);
        assert_eq!(kind(Code::QueueFull), ErrorKind::Full);
    }

    #[test]
    fn only_topic_and_message_are_reasons_to_give_up_a_message() {
        let is_given_up = |code| is_of_the_message(&of_code("topic t", code));
        assert!(
            is_given_up(Code::UnknownTopicOrPartition) && is_given_up(Code::MessageSizeTooLarge)
        );
        for code in [Code::SSL, Code::Authentication, Code::MessageTimedOut, Code::QueueFull] {
            assert!(!is_given_up(code), "{code}");
        }
        assert!(!is_of_the_message(&unreachable()));
    }

    #[test]
    fn a_setting_that_is_refused_is_named_without_its_value() {
        let mut config = rdkafka::ClientConfig::new();
        config.set("sasl.mechanismm", "canary");
        let Err(error) = config.create_native_config() else { panic!("it is no setting") };
        let error = about("the cluster", &error);
        assert!(error.to_string().contains("sasl.mechanismm"), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}
