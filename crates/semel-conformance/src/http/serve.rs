//! A tower service on a loopback port, over hyper's HTTP/1.

use std::{
    convert::Infallible,
    error::Error,
    net::{Ipv4Addr, SocketAddr},
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};
use tower_service::Service;

/// A running server. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub struct TestServer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl TestServer {
    /// Where it listens.
    #[must_use]
    pub fn base_url(&self) -> Uri {
        let url = format!("http://{}", self.address());
        url.parse().expect("an address makes a URL")
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves `service` on a loopback port of its own. It catches nothing: a panic closes the
/// connection, and a caller that hangs up drops the service's future, as in any hyper server.
pub async fn serve<S, B>(service: S) -> TestServer
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    S: Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a loopback port");
    let address = listener.local_addr().expect("a bound port has an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a loopback port accepts");
            let service = service.clone();
            let call = service_fn(move |request| called(service.clone(), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), call);
            // A connection that breaks is the caller's affair: it sees that itself.
            connections.spawn(async { drop(connection.await) });
            while connections.try_join_next().is_some() {}
        }
    });
    TestServer { address, _tasks: tasks }
}

async fn called<S: Service<Request<Incoming>>>(
    mut service: S,
    request: Request<Incoming>,
) -> Result<S::Response, S::Error> {
    std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}
