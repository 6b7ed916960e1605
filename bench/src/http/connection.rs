//! A kept-alive HTTP/1.1 connection with a minimal client.

use std::{cell::RefCell, net::Ipv4Addr, str};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use httparse::{Header, Status};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{ExpectedAnswer, LoadRequest, SendPace};

/// Larger than any answer here.
const MAX_ANSWER: usize = 8 * 1024;

const MAX_HEADERS: usize = 32;

/// The headers with which layers mark a replayed answer.
const MARKERS: [&str; 2] = ["idempotent-replayed", "idempotency-replayed"];

/// One connection to one server.
#[derive(Debug)]
pub struct LoadConnection {
    stream: TcpStream,
    answer: Box<[u8; MAX_ANSWER]>,
}

impl LoadConnection {
    /// Connects to a server on this machine.
    ///
    /// # Errors
    ///
    /// When no server listens on that port.
    pub async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Box::new([0; MAX_ANSWER]) })
    }

    /// Sends one request after the other, and checks each answer.
    pub(super) async fn repeat(
        &mut self,
        mut request: LoadRequest,
        mut keys: impl Iterator<Item = u64>,
        answer: ExpectedAnswer,
        mut pace: SendPace<'_>,
        latency: &RefCell<Histogram<u64>>,
    ) -> Result<()> {
        while let Some(due) = pace.turn().await?
            && let Some(key) = keys.next()
        {
            let (marker, body) = self.exchange(request.numbered(key)).await?;
            ensure!(body == request.answer(), "the answer has another body");
            match answer {
                ExpectedAnswer::Handler => {
                    ensure!(marker.is_none(), "a first answer is marked {marker:?}")
                }
                ExpectedAnswer::Recorded(name) => {
                    ensure!(marker == Some(name), "a replay is marked {marker:?}, not {name}");
                }
            }
            latency.borrow_mut().record(u64::try_from(due.elapsed().as_nanos())?)?;
        }
        Ok(())
    }

    /// The body of `GET path`.
    ///
    /// # Errors
    ///
    /// When the answer is not a text with status 200.
    pub async fn get(&mut self, path: &str) -> Result<&str> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let (_, body) = self.exchange(request.as_bytes()).await?;
        Ok(str::from_utf8(body)?)
    }

    /// Sends a request. Returns the marker of a replayed answer, and the body of a successful one.
    async fn exchange(&mut self, request: &[u8]) -> Result<(Option<&'static str>, &[u8])> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let (head, marker) = loop {
            let room = &mut self.answer[filled..];
            ensure!(!room.is_empty(), "the answer has more than {MAX_ANSWER} bytes");
            let read = self.stream.read(room).await?;
            ensure!(read > 0, "the server hung up");
            filled += read;
            let Some(head) = ResponseHead::parse(&self.answer[..filled])? else { continue };
            if filled >= head.bytes + head.body {
                ensure!(filled == head.bytes + head.body, "more than one answer");
                break (head.bytes, head.marker);
            }
        };
        Ok((marker, &self.answer[head..filled]))
    }
}

/// The parts of a response head that are checked.
struct ResponseHead {
    bytes: usize,
    body: usize,
    marker: Option<&'static str>,
}

impl ResponseHead {
    /// Parses the head. `None` while it is incomplete.
    fn parse(answer: &[u8]) -> Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let Status::Complete(bytes) = response.parse(answer)? else { return Ok(None) };
        if response.code != Some(200) {
            bail!("answered {}", String::from_utf8_lossy(answer));
        }
        let length = find(response.headers, "content-length").context("no content-length")?;
        let body = str::from_utf8(length)?.parse()?;
        let marker = MARKERS.into_iter().find(|name| find(response.headers, name) == Some(b"true"));
        Ok(Some(Self { bytes, body, marker }))
    }
}

fn find<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}
