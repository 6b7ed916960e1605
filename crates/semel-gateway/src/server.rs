//! Accepts connections, and ends well.

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
    client_service::{ClientService, RequestPipeline},
    framing::{ClientStream, ConnectionState, OtherProtocol},
    metrics,
};

/// The most that a head may take up.
const HEAD_BYTES: usize = 64 * 1024;

/// Serves until `shutdown`, then lets every request that has begun come to its end, until the instant that
/// `shutdown` names. Answers that instant, and whether all did.
pub(super) async fn serve(
    listener: TcpListener,
    door: Arc<RequestPipeline>,
    limits: ClientLimits,
    shutdown: impl Future<Output = Instant>,
) -> (Instant, bool) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let accepting = async {
        loop {
            // Whoever finds no place waits in the listener's queue.
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            let Some((stream, peer)) = accept(&listener).await else { continue };
            let in_flight = ConnectionState::default();
            let io = ClientStream::new(stream, limits, in_flight.clone());
            let known = in_flight.clone();
            let entrance = ClientService {
                door: door.clone(),
                peer: ClientAddress::new(peer.ip()),
                in_flight,
            };
            let connection = http1::Builder::new()
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(io), entrance);
            let connection = graceful.watch(connection);
            let counted = metrics::connection();
            tokio::spawn(async move {
                ended(peer, connection.await, known.foreign());
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

/// Tells why a connection ended. What cannot be read is answered before any of our code sees it.
fn ended(peer: SocketAddr, result: hyper::Result<()>, foreign: Option<OtherProtocol>) {
    let error = result.err();
    if error.as_ref().is_some_and(hyper::Error::is_parse) {
        metrics::unreadable();
    }
    match (foreign, error) {
        (Some(foreign), _) => foreign.log(peer),
        (None, Some(error)) if error.is_parse() => {
            info!(%peer, %error, "a request was refused: it cannot be read, or in two ways");
        }
        (None, Some(error)) => debug!(%peer, %error, "connection ended"),
        (None, None) => {}
    }
}

/// The next client; `None` after a failure that may pass.
async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    /// Out of file descriptors: some come back when connections end.
    const PAUSE: Duration = Duration::from_millis(100);
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Without it, answers in several pieces wait for acknowledgements.
            if let Err(error) = stream.set_nodelay(true) {
                debug!(%peer, %error, "no delay cannot be switched off");
            }
            Some((stream, peer))
        }
        Err(error) if is_of_one_client(&error) => None,
        Err(error) => {
            warn!(%error, "no connection can be accepted");
            sleep(PAUSE).await;
            None
        }
    }
}

fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
