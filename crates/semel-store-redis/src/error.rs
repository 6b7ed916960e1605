//! Maps errors of the driver and the server to semel's errors. No error text contains an address or a password.

use std::error::Error as _;

use redis::{RedisError, ServerError};
use semel_core::{Error, ErrorKind};

/// Why a command failed, and what that means for its connection.
#[derive(Clone, Debug)]
pub(crate) enum CommandError {
    /// The server does not have this script in its cache. It executed nothing.
    NoScript,
    /// This command failed; the connection can be used.
    Command(Error),
    /// The connection cannot be used any more.
    Connection(Error),
    /// The reply is missing, or has a shape that this command never returns.
    UnexpectedReply,
}

/// The error, where the caller does not need to know whether the connection can be used.
pub(crate) fn into_error(error: CommandError) -> Error {
    match error {
        CommandError::NoScript | CommandError::UnexpectedReply => unexpected_reply(),
        CommandError::Command(error) | CommandError::Connection(error) => error,
    }
}

/// An error reply of the server.
pub(crate) fn server_error(error: &ServerError) -> CommandError {
    classify(error.code(), error.details())
}

/// An error that the driver returned for one command. In a cluster, the driver replaces lost connections itself.
pub(crate) fn command_error(error: RedisError) -> CommandError {
    match error.code() {
        Some("MOVED" | "ASK") => CommandError::Connection(unavailable(
            "redis: slots of the cluster are moving, and the key could not be reached; try again",
        )),
        Some(code) => classify(code, error.detail()),
        None if error.is_timeout() => CommandError::Connection(timed_out()),
        None => CommandError::Command(connection_lost(error)),
    }
}

fn classify(code: &str, detail: Option<&str>) -> CommandError {
    match code {
        "NOSCRIPT" => CommandError::NoScript,
        "OOM" => CommandError::Command(Error::new(
            ErrorKind::Full,
            "redis: the server is out of memory; raise maxmemory or shorten the retention",
        )),
        "NOPERM" => CommandError::Command(permission_denied()),
        // Scripts report missing rights with this text.
        "ERR" if detail.is_some_and(|it| it.contains("The user executing the script")) => {
            CommandError::Command(permission_denied())
        }
        "WRONGTYPE" => CommandError::Command(Error::new(
            ErrorKind::Corrupt,
            "redis: a key of this prefix holds something else; give semel a prefix of its own",
        )),
        "MISCONF" => CommandError::Command(unavailable(
            "redis: the server refuses writes since it cannot save; look at its log and its disk",
        )),
        "MOVED" | "ASK" | "CROSSSLOT" => CommandError::Connection(unavailable(
            "redis: the server is part of a cluster; use redis+cluster://HOST:PORT,…",
        )),
        "NOAUTH" | "WRONGPASS" => CommandError::Connection(login_refused()),
        "READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => {
            CommandError::Connection(unavailable(format!(
                "redis: the server answers {code}; it takes no writes now"
            )))
        }
        code => {
            // The text after this repeats arguments of the command, which may be parts of an outcome.
            let detail = detail.and_then(|it| it.split(", with args").next()).unwrap_or_default();
            CommandError::Command(unavailable(format!(
                "redis: the server answers {code}: {detail}"
            )))
        }
    }
}

/// An error of the driver after which the connection cannot be used.
pub(crate) fn connection_lost(error: RedisError) -> Error {
    if error.is_timeout() {
        return timed_out();
    }
    unavailable(format!("redis: the connection is lost ({})", error.category())).with_source(error)
}

const PERMISSION_DENIED: &str =
    "redis: the user may not do this; grant the ACL rights that docs/stores/redis.md lists";
const LOGIN_REFUSED: &str =
    "redis: user or password is not accepted; put them into the URL as USER:PASSWORD@";

fn permission_denied() -> Error {
    unavailable(PERMISSION_DENIED)
}

pub(crate) fn login_refused() -> Error {
    unavailable(LOGIN_REFUSED)
}

/// At startup, a refused login or a missing right is an invalid setting: only an operator can change it, so waiting
/// does not help.
pub(crate) fn permanent_at_startup(error: Error) -> Error {
    match error.to_string().as_str() {
        text @ (PERMISSION_DENIED | LOGIN_REFUSED) => Error::invalid(text),
        _ => error,
    }
}

const TIMED_OUT: &str = "redis: no answer within the call timeout; the connection is dropped";

pub(crate) fn timed_out() -> Error {
    unavailable(TIMED_OUT)
}

/// True when the server did not answer in time.
pub(crate) fn is_timeout(error: &Error) -> bool {
    error.to_string() == TIMED_OUT
}

/// True when the connection was closed or reset. The server may still be reachable over a new connection.
pub(crate) fn is_closed(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<RedisError>());
    cause.is_some_and(|cause| cause.is_io_error() || cause.is_connection_dropped())
}

pub(crate) fn unavailable(subject: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, subject)
}

/// A reply whose shape does not fit its command.
pub(crate) fn unexpected_reply() -> Error {
    unavailable("redis: a reply does not fit its command; the connection is dropped")
}

/// For the other requests of a trip with such a reply: their replies may belong to other commands too.
#[cold]
pub(crate) fn mixed_up_replies() -> Error {
    unavailable(
        "redis: replies of this round trip are mixed up, and the request may have been executed; the connection is \
         dropped",
    )
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn text(code: &str, detail: &str) -> String {
        match classify(code, Some(detail)) {
            CommandError::Command(error) | CommandError::Connection(error) => error.to_string(),
            CommandError::NoScript | CommandError::UnexpectedReply => String::new(),
        }
    }

    #[test]
    fn an_error_names_the_fix_and_shows_nothing_of_the_command() {
        let unknown = "unknown command 'EVALSHA', with args beginning with: 'canary'";
        assert!(!text("ERR", unknown).contains("canary"));
        let denied = "The user executing the script can't run this command or subcommand";
        for (code, detail) in [("NOPERM", ""), ("ERR", denied)] {
            assert!(text(code, detail).contains("ACL"), "{code}");
        }
    }

    #[test]
    fn a_cluster_client_is_not_advised_to_use_a_cluster_url() {
        assert!(text("MOVED", "1 a:1").contains("redis+cluster://"));
        let moved = parse_redis_value(b"-MOVED 1 a:1\r\n").expect("a reply");
        let CommandError::Connection(error) =
            command_error(moved.extract_error().expect_err("an error"))
        else {
            panic!("the connection is not dropped")
        };
        assert!(!error.to_string().contains("redis+cluster://"), "{error}");
    }
}
