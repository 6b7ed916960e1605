//! One request on one connection.

use std::{fmt, pin::Pin, time::Duration};

use http::{Request, Response, Uri};
use hyper::{Error, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::oneshot, task::JoinSet, time::timeout};

use super::{ResponseStream, TestResponse, body::OutgoingBody};

/// A door that takes longer hangs: no case makes it wait for more than its wait budget of 10 s.
pub(in crate::http) const PATIENCE: Duration = Duration::from_secs(30);

/// A request on its way. Dropped, the caller has hung up.
pub struct SentRequest {
    /// hyper ends a connection whose sender is gone.
    _sender: http1::SendRequest<OutgoingBody>,
    head: Pin<Box<dyn Future<Output = Result<Response<Incoming>, Error>> + Send>>,
    connection: ConnectionTask,
}

/// The task that moves the bytes. Dropped, it closes the socket.
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
    /// When the door breaks the connection off.
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

/// Sends a request; also answers when it has been sent.
pub(super) async fn open(
    base: &Uri,
    (request, sent): (Request<OutgoingBody>, oneshot::Receiver<()>),
) -> (SentRequest, oneshot::Receiver<()>) {
    let host = base.host().expect("a base URL names a host").trim_matches(['[', ']']);
    let address = (host, base.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(address).await.expect("the door takes connections");
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.expect("no bytes yet");
    let mut connection = JoinSet::new();
    // An error of the connection is an error of its one request too.
    connection.spawn(async { drop(driver.await) });
    // The request is on its way from here on, whether or not anybody asks for the head.
    let head = Box::pin(sender.send_request(request));
    (SentRequest { _sender: sender, head, connection }, sent)
}

/// Waits for what must come about, or says what did not.
pub(in crate::http) async fn in_time<F: Future>(event: F, promise: &str) -> F::Output {
    timeout(PATIENCE, event).await.unwrap_or_else(|_| panic!("{promise}: not in {PATIENCE:?}"))
}
