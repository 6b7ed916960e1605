//! A request that can be sent many times.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{HOST, TE, TRAILER},
};
use hyper::Error;
use tokio::sync::oneshot;

use super::{
    SentRequest, TestResponse,
    body::{BodyFraming, OutgoingBody},
    connection,
};

/// A request to the target. Sending does not consume it, so that the same request can be sent again as a retry.
#[derive(Clone, Debug)]
pub struct TestRequest {
    base: Uri,
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Vec<Bytes>,
    framing: BodyFraming,
    trailers: HeaderMap,
    broken: bool,
}

impl TestRequest {
    /// A request without headers or body.
    #[must_use]
    pub fn new(base: Uri, method: Method, target: &str) -> Self {
        Self {
            base,
            method,
            target: target.to_owned(),
            headers: HeaderMap::new(),
            body: Vec::new(),
            framing: BodyFraming::Sized,
            trailers: HeaderMap::new(),
            broken: false,
        }
    }

    /// Adds a header line, beside others of its name. The value may be any bytes HTTP can carry.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.append(self::name(name), self::value(value));
        self
    }

    /// Replaces all header lines of this name with one.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.insert(self::name(name), self::value(value));
        self
    }

    /// Removes all header lines of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sends it to another path and query.
    #[must_use]
    pub fn to(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// Sends it with another method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets a body with a declared length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        (self.body, self.framing) = (vec![body.into()], BodyFraming::Sized);
        self
    }

    /// Sets a body in chunks, without a declared length.
    #[must_use]
    pub fn chunks<const N: usize>(mut self, chunks: [&str; N]) -> Self {
        let chunks = chunks.map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
        (self.body, self.framing) = (chunks.into(), BodyFraming::Chunked);
        self
    }

    /// Adds a trailer after the body, which is then sent in chunks.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.append(self::name(name), self::value(value));
        self.framing = BodyFraming::Chunked;
        self.with(TRAILER.as_str(), name)
    }

    /// Closes the connection before the last byte of the body.
    #[must_use]
    pub fn breaks_off(mut self) -> Self {
        self.broken = true;
        self
    }

    /// Sends it and reads the whole answer.
    ///
    /// # Panics
    ///
    /// If no whole answer comes.
    pub async fn send(&self) -> TestResponse {
        let answer = self.try_send().await;
        answer.unwrap_or_else(|error| panic!("every request has a whole answer: {error}"))
    }

    /// Sends it and reads the whole answer, if one comes.
    ///
    /// # Errors
    ///
    /// If the target closes the connection before the end of the answer.
    pub async fn try_send(&self) -> Result<TestResponse, Error> {
        connection::open(&self.base, self.request()).await.0.stream().await?.collect().await
    }

    /// Sends the whole request and does not wait for the answer. Dropping the returned value disconnects.
    pub async fn start(&self) -> SentRequest {
        let (started, sent) = connection::open(&self.base, self.request()).await;
        // No value is ever sent: the end of the body drops the sender.
        drop(sent.await);
        started
    }

    fn request(&self) -> (Request<OutgoingBody>, oneshot::Receiver<()>) {
        let (mut body, sent) = OutgoingBody::new(&self.body, self.framing, &self.trailers);
        if self.broken {
            body.break_off();
        }
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        let target = format!("{}{}", self.base.path().trim_end_matches('/'), self.target);
        *request.uri_mut() = target.parse().expect("the suite writes valid targets");
        *request.headers_mut() = self.headers.clone();
        let host = self.base.authority().expect("a base URL names a host");
        request.headers_mut().insert(HOST, value(host.as_str()));
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        (request, sent)
    }
}

fn name(name: &str) -> HeaderName {
    name.parse().expect("the suite writes valid header names")
}

fn value(value: impl AsRef<[u8]>) -> HeaderValue {
    HeaderValue::from_bytes(value.as_ref()).expect("the suite writes bytes that HTTP allows")
}
