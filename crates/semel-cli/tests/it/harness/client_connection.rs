//! A client's connection, written and read byte by byte.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{
    ClientResponse, PATIENCE, TestRequest,
    http1::{self, BodyFraming, MessageHead},
};

/// Sends a request on a new connection, and reads the response.
pub(crate) async fn request_to(address: SocketAddr, request: TestRequest) -> ClientResponse {
    let mut connection = ClientConnection::to(address).await;
    connection.write(request.bytes()).await;
    connection.read_response().await.unwrap()
}

/// A connection. Every read and write ends within [`PATIENCE`], or the test fails.
#[derive(Debug)]
pub(crate) struct ClientConnection(BufReader<TcpStream>);

impl ClientConnection {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        // Pieces have to arrive as they are sent.
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// Writes bytes. A server that has closed the connection is no error here: its response says why.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let sending = self.0.write_all(bytes.as_ref());
        let _ = timeout(PATIENCE, sending).await.expect("the server reads");
    }

    /// The next response, without interim ones; `None` if the connection ends.
    pub(crate) async fn read_response(&mut self) -> Option<ClientResponse> {
        loop {
            match self.read_any_response().await {
                Some(response) if response.status < 200 => {}
                response => return response,
            }
        }
    }

    /// The next response, also an interim one.
    pub(crate) async fn read_any_response(&mut self) -> Option<ClientResponse> {
        let head = self.read_head().await?;
        let framing = match head.status {
            100..200 | 204 | 304 => None,
            _ => Some(framing(&head)),
        };
        Some(self.read_body(head, framing).await)
    }

    /// Status and headers. The body, if there is one, is not read.
    pub(crate) async fn read_head(&mut self) -> Option<ClientResponse> {
        let head = timeout(PATIENCE, http1::head(&mut self.0)).await.expect("a response");
        let MessageHead { line, headers } = head?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {line}"));
        Some(ClientResponse { status, headers, body: Vec::new(), whole: true })
    }

    async fn read_body(
        &mut self,
        mut response: ClientResponse,
        framing: Option<BodyFraming>,
    ) -> ClientResponse {
        let Some(framing) = framing else { return response };
        let body = &mut response.body;
        let reading = http1::body(&mut self.0, framing, |piece| body.extend_from_slice(piece));
        response.whole = timeout(PATIENCE, reading).await.expect("the rest of a response").is_ok();
        response
    }

    /// Asserts that exactly these bytes arrive next.
    pub(crate) async fn read_bytes(&mut self, expected: &[u8]) {
        let mut received = vec![0; expected.len()];
        let reading = self.0.read_exact(&mut received);
        timeout(PATIENCE, reading).await.expect("bytes in time").expect("bytes");
        assert_eq!(String::from_utf8_lossy(&received), String::from_utf8_lossy(expected));
    }

    /// Waits until the server has closed the connection. Returns the bytes before that; there should be none.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let reading = self.0.read_to_end(&mut rest);
        // A reset counts as closing, too.
        let _ = timeout(PATIENCE, reading).await.expect("the connection is closed");
        rest
    }

    pub(crate) async fn assert_closed(&mut self, what: &str) {
        let rest = self.rest().await;
        assert!(rest.is_empty(), "{what}: {}", String::from_utf8_lossy(&rest));
    }
}

fn framing(response: &ClientResponse) -> BodyFraming {
    let head = MessageHead { line: String::new(), headers: response.headers.clone() };
    head.framing().unwrap().unwrap_or(BodyFraming::ToTheEnd)
}
