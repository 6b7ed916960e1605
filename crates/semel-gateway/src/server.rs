//! Accepts client connections, and shuts down without losing a request.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use semel_service::settings::ClientLimits;
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};
use tracing::{debug, info, warn};

use super::{
    checked_request::ClientAddress,
    client_service::ClientService,
    framing::{ClientStream, ConnectionState, OtherProtocol},
    metrics,
    pipeline::RequestPipeline,
};

/// The largest head of a request.
const HEAD_BYTES: usize = 64 * 1024;

/// Serves until `shutdown`, then finishes the requests that have begun, up to the instant that `shutdown` returns.
/// Returns that instant, and whether all requests ended by then.
pub(super) async fn serve(
    listener: TcpListener,
    pipeline: Arc<RequestPipeline>,
    limits: ClientLimits,
    shutdown: impl Future<Output = Instant>,
) -> (Instant, bool) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let accepting = async {
        loop {
            // Without a free place, clients wait in the queue of the listener.
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            let Some((stream, peer)) = accept(&listener).await else { continue };
            let state = ConnectionState::default();
            let io = ClientStream::new(stream, limits, state.clone());
            let service = ClientService {
                pipeline: pipeline.clone(),
                client: ClientAddress::new(peer.ip()),
                connection: state.clone(),
            };
            let connection = http1::Builder::new()
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(io), service);
            let connection = graceful.watch(connection);
            let counted = metrics::connection();
            tokio::spawn(async move {
                log_end(peer, connection.await, state.other_protocol());
                drop((place, counted));
            });
        }
    };
    let deadline = select! {
        never = accepting => match never {},
        deadline = shutdown => deadline,
    };
    drop(listener);
    (deadline, timeout_at(deadline, graceful.shutdown()).await.is_ok())
}

/// Logs why a connection ended. hyper answers an unreadable request before the gateway sees it.
fn log_end(peer: SocketAddr, result: hyper::Result<()>, other_protocol: Option<OtherProtocol>) {
    let error = result.err();
    if error.as_ref().is_some_and(hyper::Error::is_parse) {
        metrics::unreadable();
    }
    match (other_protocol, error) {
        (Some(protocol), _) => protocol.log(peer),
        (None, Some(error)) if error.is_parse() => {
            info!(%peer, %error, "refused a request that is malformed or ambiguous");
        }
        (None, Some(error)) => debug!(%peer, %error, "connection ended"),
        (None, None) => {}
    }
}

/// The next client; `None` after an error that may pass.
async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    /// When file descriptors are exhausted: some become free when connections end.
    const PAUSE: Duration = Duration::from_millis(100);
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Without it, responses in several pieces wait for acknowledgements.
            if let Err(error) = stream.set_nodelay(true) {
                debug!(%peer, %error, "cannot set TCP_NODELAY");
            }
            Some((stream, peer))
        }
        Err(error) if is_about_one_client(&error) => None,
        Err(error) => {
            warn!(%error, "cannot accept connections");
            sleep(PAUSE).await;
            None
        }
    }
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
