//! A client's connection, written to and read from by hand.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{
    Answer, Ask, PATIENCE,
    reading::{self, Framing, Head},
};

/// The answer to a request, on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, ask: Ask) -> Answer {
    let mut wire = Wire::to(address).await;
    wire.say(ask.bytes()).await;
    wire.hear().await.unwrap()
}

/// A connection. Whatever it waits for comes within [`PATIENCE`], or the test fails.
#[derive(Debug)]
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        // Pieces are to arrive as they are sent.
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// A server that has closed does not listen; its answer says why.
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let sending = self.0.write_all(bytes.as_ref());
        let _ = timeout(PATIENCE, sending).await.expect("somebody reads");
    }

    /// The next answer, 100 Continue left out; `None` where the connection ends instead.
    pub(crate) async fn hear(&mut self) -> Option<Answer> {
        loop {
            match self.hear_any().await {
                Some(answer) if answer.status < 200 => {}
                answer => return answer,
            }
        }
    }

    /// The next answer, be it an interim one.
    pub(crate) async fn hear_any(&mut self) -> Option<Answer> {
        let head = self.hear_head().await?;
        let framing = match head.status {
            100..200 | 204 | 304 => None,
            _ => Some(framing(&head)),
        };
        Some(self.hear_rest(head, framing).await)
    }

    /// Status and headers. The body, if there is one, stays on the wire.
    pub(crate) async fn hear_head(&mut self) -> Option<Answer> {
        let head = timeout(PATIENCE, reading::head(&mut self.0)).await.expect("an answer");
        let Head { line, headers } = head?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {line}"));
        Some(Answer { status, headers, body: Vec::new(), whole: true })
    }

    async fn hear_rest(&mut self, mut answer: Answer, framing: Option<Framing>) -> Answer {
        let Some(framing) = framing else { return answer };
        let body = &mut answer.body;
        let reading = reading::body(&mut self.0, framing, |piece| body.extend_from_slice(piece));
        answer.whole = timeout(PATIENCE, reading).await.expect("the rest of an answer").is_ok();
        answer
    }

    /// Exactly these bytes are next.
    pub(crate) async fn hear_bytes(&mut self, expected: &[u8]) {
        let mut heard = vec![0; expected.len()];
        let reading = self.0.read_exact(&mut heard);
        timeout(PATIENCE, reading).await.expect("bytes in time").expect("bytes");
        assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(expected));
    }

    /// Waits until the other side has closed. What came before it is returned; nothing should.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let reading = self.0.read_to_end(&mut rest);
        // A reset is an end, too.
        let _ = timeout(PATIENCE, reading).await.expect("the connection is closed");
        rest
    }

    pub(crate) async fn assert_closed(&mut self, what: &str) {
        let rest = self.rest().await;
        assert!(rest.is_empty(), "{what}: {}", String::from_utf8_lossy(&rest));
    }
}

fn framing(answer: &Answer) -> Framing {
    let head = Head { line: String::new(), headers: answer.headers.clone() };
    head.framing().unwrap().unwrap_or(Framing::ToTheEnd)
}
