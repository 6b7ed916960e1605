//! What `/readyz` needs beside the store: a closed circuit breaker, a broker that answers and, if configured, a handler
//! that can be reached.

use std::time::Duration;

use futures_util::future::BoxFuture;
use semel_consumer::{ConsumerControl, Source, pipeline::BreakerPosition};
use semel_service::{
    admin::{Readiness, ReadinessCheck},
    settings::HandlerUrl,
};
use tokio::{net::TcpStream, time::timeout};

use crate::open::SharedSource;

/// Time for the broker, and for the handler to accept a connection.
const LIMIT: Duration = Duration::from_secs(1);

/// What `/readyz` needs beside the store.
pub(crate) struct WorkerReadiness {
    pub(crate) control: ConsumerControl,
    pub(crate) source: SharedSource,
    /// The handler, if it has to be reachable.
    pub(crate) handler: Option<HandlerUrl>,
}

impl WorkerReadiness {
    async fn check_source(&self) -> Readiness {
        match timeout(LIMIT, self.source.lag()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!("not ready: {error}");
                Err("the source answers with an error".into())
            }
            Err(_) => {
                tracing::warn!("not ready: the source does not answer within {LIMIT:?}");
                Err("the source does not answer".into())
            }
        }
    }

    async fn check_handler(&self) -> Readiness {
        let Some(handler) = &self.handler else { return Ok(()) };
        match timeout(LIMIT, TcpStream::connect(handler.address())).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err("the handler cannot be reached".into()),
        }
    }
}

impl ReadinessCheck for WorkerReadiness {
    /// A half-open breaker is ready: it may stay so for as long as there are no messages.
    fn observed(&self) -> Readiness {
        match self.control.breaker() {
            BreakerPosition::Closed | BreakerPosition::HalfOpen => Ok(()),
            BreakerPosition::Open => {
                Err("the circuit breaker is open: the handler or the store keeps failing".into())
            }
        }
    }

    fn check(&self) -> BoxFuture<'_, Readiness> {
        Box::pin(async {
            self.check_source().await?;
            self.check_handler().await
        })
    }
}
