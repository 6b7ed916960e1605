//! Driver and server errors into semel's, in one place. Nothing here prints an address or a password.

use std::error::Error as _;

use redis::{RedisError, ServerError};
use semel_core::{Error, ErrorKind};

/// What is to be done about an error of the server.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The server does not know this script; nothing happened.
    NoScript,
    /// This call failed; the connection is fine.
    Call(Error),
    /// Nothing more can come from this connection.
    Link(Error),
    /// There is no reply, or it does not have the shape of an answer to what was asked.
    Odd,
}

/// The same as an error, where nobody tells them apart.
pub(crate) fn known(trouble: Trouble) -> Error {
    match trouble {
        Trouble::NoScript | Trouble::Odd => odd_reply(),
        Trouble::Call(error) | Trouble::Link(error) => error,
    }
}

/// An error that the server answered one command with.
pub(crate) fn refused(error: &ServerError) -> Trouble {
    trouble(error.code(), error.details())
}

/// An error of one command among others in a cluster, where the driver mends its own connections.
pub(crate) fn failed(error: RedisError) -> Trouble {
    match error.code() {
        Some("MOVED" | "ASK") => Trouble::Link(unavailable(
            "redis: slots of the cluster move, and the key was not reached; try again",
        )),
        Some(code) => trouble(code, error.detail()),
        None if error.is_timeout() => Trouble::Link(timed_out()),
        None => Trouble::Call(broken(error)),
    }
}

fn trouble(code: &str, detail: Option<&str>) -> Trouble {
    match code {
        "NOSCRIPT" => Trouble::NoScript,
        "OOM" => Trouble::Call(Error::new(
            ErrorKind::Full,
            "redis: the server is out of memory; raise maxmemory or shorten the retention",
        )),
        "NOPERM" => Trouble::Call(not_allowed()),
        // So says a script.
        "ERR" if detail.is_some_and(|it| it.contains("The user executing the script")) => {
            Trouble::Call(not_allowed())
        }
        "WRONGTYPE" => Trouble::Call(Error::new(
            ErrorKind::Corrupt,
            "redis: a key of this prefix holds something else; give semel a prefix of its own",
        )),
        "MISCONF" => Trouble::Call(unavailable(
            "redis: the server refuses writes since it cannot save; look at its log and its disk",
        )),
        "MOVED" | "ASK" | "CROSSSLOT" => Trouble::Link(unavailable(
            "redis: the server is part of a cluster; use redis+cluster://HOST:PORT,…",
        )),
        "NOAUTH" | "WRONGPASS" => Trouble::Link(not_let_in()),
        "READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => Trouble::Link(
            unavailable(format!("redis: the server answers {code}; it takes no writes now")),
        ),
        code => {
            // What follows is a part of the command, and with it of an outcome.
            let detail = detail.and_then(|it| it.split(", with args").next()).unwrap_or_default();
            Trouble::Call(unavailable(format!("redis: the server answers {code}: {detail}")))
        }
    }
}

/// An error of the driver: the connection is of no use any more.
pub(crate) fn broken(error: RedisError) -> Error {
    if error.is_timeout() {
        return timed_out();
    }
    unavailable(format!("redis: the connection is lost ({})", error.category())).with_source(error)
}

const NOT_ALLOWED: &str =
    "redis: the user may not do this; grant the ACL rights that docs/stores/redis.md lists";
const NOT_LET_IN: &str =
    "redis: user or password is not accepted; put them into the URL as USER:PASSWORD@";

fn not_allowed() -> Error {
    unavailable(NOT_ALLOWED)
}

pub(crate) fn not_let_in() -> Error {
    unavailable(NOT_LET_IN)
}

/// To who has just begun, what only a person can change is no reason to wait.
pub(crate) fn for_who_begins(error: Error) -> Error {
    match error.to_string().as_str() {
        text @ (NOT_ALLOWED | NOT_LET_IN) => Error::invalid(text),
        _ => error,
    }
}

const TIMED_OUT: &str = "redis: no answer within the call timeout; the connection is dropped";

pub(crate) fn timed_out() -> Error {
    unavailable(TIMED_OUT)
}

/// True when the server did not answer.
pub(crate) fn is_timeout(error: &Error) -> bool {
    error.to_string() == TIMED_OUT
}

/// True when the connection was closed or reset. Whether the server can be reached, only another connection shows.
pub(crate) fn is_closed(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<RedisError>());
    cause.is_some_and(|cause| cause.is_io_error() || cause.is_connection_dropped())
}

pub(crate) fn unavailable(subject: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, subject)
}

/// A reply that does not have the shape of an answer to what was asked.
pub(crate) fn odd_reply() -> Error {
    unavailable("redis: a reply is not an answer to what was asked; the connection is dropped")
}

/// Said to the neighbours of such a reply: if one is another call's, so may be theirs.
#[cold]
pub(crate) fn wrong_record() -> Error {
    unavailable(
        "redis: replies of this trip are mixed up, so what was asked may have happened; the connection is dropped",
    )
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn told(code: &str, detail: &str) -> String {
        match trouble(code, Some(detail)) {
            Trouble::Call(error) | Trouble::Link(error) => error.to_string(),
            Trouble::NoScript | Trouble::Odd => String::new(),
        }
    }

    #[test]
    fn an_error_names_the_fix_and_shows_nothing_of_the_command() {
        let unknown = "unknown command 'EVALSHA', with args beginning with: 'canary'";
        assert!(!told("ERR", unknown).contains("canary"));
        let denied = "The user executing the script can't run this command or subcommand";
        for (code, detail) in [("NOPERM", ""), ("ERR", denied)] {
            assert!(told(code, detail).contains("ACL"), "{code}");
        }
    }

    #[test]
    fn who_uses_a_cluster_is_not_told_to_use_one() {
        assert!(told("MOVED", "1 a:1").contains("redis+cluster://"));
        let moved = parse_redis_value(b"-MOVED 1 a:1\r\n").expect("a reply");
        let Trouble::Link(error) = failed(moved.extract_error().expect_err("an error")) else {
            panic!("the connection is not dropped")
        };
        assert!(!error.to_string().contains("redis+cluster://"), "{error}");
    }
}
