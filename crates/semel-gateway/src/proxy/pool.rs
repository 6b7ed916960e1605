//! The idle connections to one upstream.

use std::{collections::VecDeque, io, sync::Arc};

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use semel_service::settings::{self, UpstreamTimeouts};
use tokio::{
    net::TcpStream,
    time::{Duration, Instant, sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    connection::{ExchangeError, UpstreamConnection},
    upload::{Upload, UploadProgress},
};
use crate::metrics::UpstreamErrors;

/// An upstream, as the proxy uses it.
#[derive(Debug)]
pub(crate) struct ProxyUpstream {
    pub(super) name: String,
    /// The address to connect to: host and port.
    pub(super) address: String,
    pub(super) host: HeaderValue,
    /// The path before every request's path; empty if there is none.
    pub(super) base: String,
    pub(super) preserve_host: bool,
    pub(super) errors: UpstreamErrors,
}

/// An upstream and its connections.
pub(crate) struct ConnectionPool {
    pub(super) upstream: ProxyUpstream,
    pub(super) timeouts: UpstreamTimeouts,
    /// The connection used last is at the back and is used first, so that the others can expire.
    idle: Mutex<VecDeque<IdleConnection>>,
    /// Uploads that go on beside or after their responses.
    finishing: TaskTracker,
}

struct IdleConnection {
    connection: Box<UpstreamConnection>,
    since: Instant,
}

/// Why a request has no response.
#[derive(Debug)]
pub(super) enum UpstreamFailure {
    /// No byte of the request was sent.
    Unreachable(io::Error),
    /// The connection broke after bytes may have been sent.
    Failed(hyper::Error),
    /// The head of the response is over the limit: the upstream has answered.
    HeadTooLarge,
    /// The body from the client broke off.
    ClientBody(hyper::Error),
    /// There was no response in time.
    Timeout,
}

/// A response, and the connection that its body is read from.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<Incoming>,
    pub(super) connection: Box<UpstreamConnection>,
    /// The progress of an upload that may not have ended yet.
    pub(super) progress: Option<Arc<UploadProgress>>,
}

impl ProxyUpstream {
    pub(crate) fn new(settings: &settings::UpstreamConfig) -> Self {
        let authority = &settings.authority;
        let port = authority.port_u16().unwrap_or(80);
        Self {
            name: settings.name.clone(),
            address: format!("{}:{port}", authority.host()),
            host: HeaderValue::try_from(authority.as_str()).expect("an authority is ASCII"),
            base: settings.base.clone(),
            preserve_host: settings.preserve_host,
            errors: UpstreamErrors::new(&settings.name),
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests(address: &'static str) -> Self {
        Self {
            name: "test".to_owned(),
            address: address.to_owned(),
            host: HeaderValue::from_static(address),
            base: String::new(),
            preserve_host: false,
            errors: UpstreamErrors::new("test"),
        }
    }
}

impl ConnectionPool {
    /// The most idle connections; further ones are closed.
    const MAX_IDLE: usize = 1024;

    pub(crate) fn new(upstream: ProxyUpstream, timeouts: UpstreamTimeouts) -> Arc<Self> {
        let pool = Arc::new(Self {
            upstream,
            timeouts,
            idle: Mutex::default(),
            finishing: TaskTracker::new(),
        });
        tokio::spawn(sweep(Arc::downgrade(&pool)));
        pool
    }

    /// Sends a request over an idle connection, or over a new one.
    pub(super) async fn send(
        &self,
        mut request: Request<Upload>,
        progress: Option<Arc<UploadProgress>>,
    ) -> Result<UpstreamResponse, UpstreamFailure> {
        loop {
            let (mut connection, is_new) = match self.take() {
                Some(connection) => (connection, false),
                None => (self.connect().await.map_err(UpstreamFailure::Unreachable)?, true),
            };
            let limit = self.timeouts.header;
            match connection.send(request, progress.clone(), limit).await {
                Ok(response) => return Ok(UpstreamResponse { response, connection, progress }),
                Err(ExchangeError::Broken(error)) if error.is_user() => {
                    return Err(UpstreamFailure::ClientBody(error));
                }
                Err(ExchangeError::Broken(error)) if error.is_parse_too_large() => {
                    return Err(UpstreamFailure::HeadTooLarge);
                }
                Err(ExchangeError::Broken(error)) => return Err(UpstreamFailure::Failed(error)),
                Err(ExchangeError::Timeout) => return Err(UpstreamFailure::Timeout),
                // The upstream had closed the connection while it was idle.
                Err(ExchangeError::Unsent(back)) if !is_new => request = *back,
                Err(ExchangeError::Unsent(_)) => {
                    let why = "the upstream closed the connection at once";
                    return Err(UpstreamFailure::Unreachable(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        why,
                    )));
                }
            }
        }
    }

    fn take(&self) -> Option<Box<UpstreamConnection>> {
        loop {
            let IdleConnection { mut connection, since } = self.idle.lock().pop_back()?;
            if since.elapsed() < self.timeouts.idle && connection.is_free() {
                return Some(connection);
            }
        }
    }

    /// Takes a connection back if it can be used again. One whose upload has not ended continues in a task.
    pub(super) fn give_back(
        &self,
        mut connection: Box<UpstreamConnection>,
        progress: Option<&Arc<UploadProgress>>,
    ) {
        if !connection.is_free() {
            if !connection.is_closed() {
                self.finish(connection, progress);
            }
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < Self::MAX_IDLE {
            idle.push_back(IdleConnection { connection, since: Instant::now() });
        }
    }

    /// Finishes an upload in a task of its own.
    pub(super) fn finish(
        &self,
        connection: Box<UpstreamConnection>,
        progress: Option<&Arc<UploadProgress>>,
    ) {
        let finishing = connection.finish(progress.cloned(), self.timeouts.body);
        self.finishing.spawn(finishing);
    }

    /// Waits for all uploads to end.
    pub(crate) async fn finished(&self) {
        self.finishing.close();
        self.finishing.wait().await;
    }

    pub(crate) fn name(&self) -> &str {
        &self.upstream.name
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.upstream.address
    }

    /// Makes a connection within `limit` and closes it.
    pub(crate) async fn probe(&self, limit: Duration) -> io::Result<()> {
        self.stream(limit.min(self.timeouts.connect)).await.map(drop)
    }

    async fn stream(&self, limit: Duration) -> io::Result<TcpStream> {
        timeout(limit, TcpStream::connect(self.upstream.address.as_str())).await?
    }

    async fn connect(&self) -> io::Result<Box<UpstreamConnection>> {
        let stream = self.stream(self.timeouts.connect).await?;
        stream.set_nodelay(true)?;
        let connection = UpstreamConnection::new(stream).await.map_err(io::Error::other)?;
        Ok(Box::new(connection))
    }

    fn close_expired(&self) {
        let mut idle = self.idle.lock();
        while idle.front().is_some_and(|it| it.since.elapsed() >= self.timeouts.idle) {
            idle.pop_front();
        }
    }
}

/// Closes connections that were idle for too long, until the pool is dropped.
async fn sweep(pool: std::sync::Weak<ConnectionPool>) {
    loop {
        let Some(pause) = pool.upgrade().map(|pool| pool.timeouts.idle) else { return };
        sleep(pause).await;
        if let Some(pool) = pool.upgrade() {
            pool.close_expired();
        }
    }
}
