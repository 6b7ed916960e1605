//! The HTTP client. It follows no redirects.

use std::{error::Error as StdError, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use semel::{ErrorClass, WorkError};
use tokio::time::{Instant, sleep};

use crate::metrics::{RequestResult, count};

/// Time for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a handler that cannot be reached is waited for within one attempt: a restart of the handler uses up no
/// attempts. Nothing is sent meanwhile, so nothing runs twice.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first and the longest pause between two connections.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// How long an idle connection is kept: less than servers usually keep theirs.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The most headers of a response. hyper's default limit of 100 is less than some services send.
const HEADERS: usize = 256;
/// The largest head of a response.
const HEAD_BYTES: usize = 64 * 1024;

/// Connections to the handler.
#[derive(Debug)]
pub(super) struct HandlerClient {
    client: Client<HttpConnector, Full<Bytes>>,
    patience: Duration,
}

/// Why a request has no response.
#[derive(Debug)]
pub(super) enum NoResponse {
    /// No byte of the request was sent.
    Unreachable(String),
    /// The connection broke after bytes may have been sent, or the response is not HTTP.
    Broken(String),
}

impl HandlerClient {
    /// A client whose requests may take `timeout`. A connection that takes so long that no request could follow is
    /// given up earlier, so that it counts as unreachable.
    pub(super) fn new(timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT.min(timeout / 2)));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .http1_max_headers(HEADERS)
            .http1_max_buf_size(HEAD_BYTES)
            .build(connector);
        Self { client, patience: PATIENCE.min(timeout / 2) }
    }

    /// Sends a request, and waits for the head of its response.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, NoResponse> {
        let give_up_at = Instant::now() + self.patience;
        let mut pause = PAUSES.0;
        loop {
            let sent = self.client.request(request.clone()).await;
            match sent.map_err(|error| NoResponse::of(&error)) {
                Err(NoResponse::Unreachable(_)) if Instant::now() + pause < give_up_at => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                result => return result,
            }
        }
    }
}

impl NoResponse {
    fn of(error: &legacy::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
        // hyper cancels a request that was still queued when its connection closed.
        if error.is_connect() || cause.is_some_and(hyper::Error::is_canceled) {
            return Self::Unreachable(innermost(error));
        }
        Self::Broken(match cause {
            Some(cause) if cause.is_parse_too_large() => {
                "the head of its response is too large".to_owned()
            }
            Some(cause) if cause.is_parse() => "its response is not HTTP".to_owned(),
            Some(cause) if cause.is_incomplete_message() => {
                "it closed the connection before its response was complete".to_owned()
            }
            Some(_) | None => innermost(error),
        })
    }

    pub(super) fn into_error(self) -> WorkError {
        match self {
            Self::Unreachable(why) => {
                count(RequestResult::Unreachable);
                let why = format!("the handler cannot be reached (--handler): {why}");
                WorkError::no_effect(why).class(ErrorClass::Network)
            }
            Self::Broken(why) => {
                count(RequestResult::Broken);
                let why = format!("the handler failed: {why}");
                WorkError::indeterminate(why).class(ErrorClass::Network)
            }
        }
    }
}

/// The cause that names the problem, such as `Connection refused`.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.last().map_or_else(String::new, ToString::to_string)
}
