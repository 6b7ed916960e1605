//! One request on one connection.

use std::{fmt, pin::Pin, time::Duration};

use http::{Request, Response, Uri};
use hyper::{Error, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::oneshot, task::JoinSet, time::timeout};

use super::{ResponseStream, TestResponse, body::OutgoingBody};

/// A target that takes longer hangs: no case makes it wait longer than its wait of 10 s.
pub(in crate::http) const PATIENCE: Duration = Duration::from_secs(30);

/// A request that was sent. Dropping it disconnects the caller.
pub struct SentRequest {
    /// hyper ends a connection whose sender is gone.
    _sender: http1::SendRequest<OutgoingBody>,
    head: Pin<Box<dyn Future<Output = Result<Response<Incoming>, Error>> + Send>>,
    connection: ConnectionTask,
}

/// The task that drives the connection. Dropping it closes the socket.
pub(super) type ConnectionTask = JoinSet<()>;

impl fmt::Debug for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentRequest").finish_non_exhaustive()
    }
}

impl SentRequest {
    /// Waits for status and headers.
    ///
    /// # Errors
    ///
    /// If the target closes the connection.
    pub async fn stream(self) -> Result<ResponseStream, Error> {
        let head = in_time(self.head, "every request is answered").await?;
        Ok(ResponseStream::new(head, self.connection))
    }

    /// Waits for the whole answer.
    ///
    /// # Panics
    ///
    /// When no whole answer comes.
    pub async fn response(self) -> TestResponse {
        let whole = async { self.stream().await?.collect().await };
        whole.await.unwrap_or_else(|error| panic!("every request has a whole answer: {error}"))
    }
}

/// Sends a request. The receiver resolves when the whole request has been sent.
pub(super) async fn open(
    base: &Uri,
    (request, sent): (Request<OutgoingBody>, oneshot::Receiver<()>),
) -> (SentRequest, oneshot::Receiver<()>) {
    let host = base.host().expect("a base URL names a host").trim_matches(['[', ']']);
    let address = (host, base.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(address).await.expect("the target accepts connections");
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.expect("no bytes yet");
    let mut connection = JoinSet::new();
    // An error of the connection is also reported by its one request.
    connection.spawn(async { drop(driver.await) });
    // The request is sent from here on, even if the head is never awaited.
    let head = Box::pin(sender.send_request(request));
    (SentRequest { _sender: sender, head, connection }, sent)
}

/// Waits for an event, and panics with `promise` if it does not come in time.
pub(in crate::http) async fn in_time<F: Future>(event: F, promise: &str) -> F::Output {
    timeout(PATIENCE, event).await.unwrap_or_else(|_| panic!("{promise}: not in {PATIENCE:?}"))
}
