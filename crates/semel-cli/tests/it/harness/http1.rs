//! Reads HTTP/1 for both ends of the tests: heads, and bodies by length, in chunks or to the end of the connection.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// First line and headers, with lower-case names.
#[derive(Debug)]
pub(super) struct MessageHead {
    pub(super) line: String,
    pub(super) headers: Vec<(String, String)>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BodyFraming {
    Length(usize),
    Chunked,
    ToTheEnd,
}

impl MessageHead {
    pub(super) fn all<'a>(&'a self, name: &str) -> Vec<&'a str> {
        let found = self.headers.iter().filter(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    /// The framing of the body after this head, if it is unambiguous.
    pub(super) fn framing(&self) -> Result<Option<BodyFraming>, String> {
        let bad = || Err(format!("ambiguous framing: {self:?}"));
        match (&self.all("content-length")[..], &self.all("transfer-encoding")[..]) {
            ([], []) => Ok(None),
            ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().map(|length| Some(BodyFraming::Length(length))).or_else(|_| bad())
            }
            ([], ["chunked"]) => Ok(Some(BodyFraming::Chunked)),
            _ => bad(),
        }
    }
}

/// The next head; `None` if the connection ends.
pub(super) async fn head(from: &mut (impl AsyncBufRead + Unpin)) -> Option<MessageHead> {
    let first = line(from).await.ok()?;
    let mut headers = Vec::new();
    loop {
        let line = line(from).await.ok()?;
        let Some((name, value)) = line.split_once(':') else {
            return line.is_empty().then_some(MessageHead { line: first, headers });
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
}

/// Reads a body and passes on its pieces. `Err` if the connection ends too early.
pub(super) async fn body(
    from: &mut (impl AsyncBufRead + Unpin),
    framing: BodyFraming,
    mut piece: impl FnMut(&[u8]),
) -> io::Result<Vec<(String, String)>> {
    match framing {
        BodyFraming::Length(length) => exactly(from, length, &mut piece).await?,
        BodyFraming::ToTheEnd => {
            while let Some(length) = some(from, usize::MAX, &mut piece).await? {
                from.consume(length);
            }
        }
        BodyFraming::Chunked => loop {
            let size = line(from).await?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| broken())?;
            if size == 0 {
                return trailers(from).await;
            }
            exactly(from, size, &mut piece).await?;
            if !line(from).await?.is_empty() {
                return Err(broken());
            }
        },
    }
    Ok(Vec::new())
}

async fn trailers(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<(String, String)>> {
    let mut trailers = Vec::new();
    loop {
        let line = line(from).await?;
        let Some((name, value)) = line.split_once(':') else { return Ok(trailers) };
        trailers.push((name.to_lowercase(), value.trim().to_owned()));
    }
}

async fn exactly(
    from: &mut (impl AsyncBufRead + Unpin),
    mut left: usize,
    piece: &mut impl FnMut(&[u8]),
) -> io::Result<()> {
    while left > 0 {
        let length = some(from, left, piece).await?.ok_or_else(broken)?;
        from.consume(length);
        left -= length;
    }
    Ok(())
}

/// Passes on the buffered bytes, which are then to be consumed. `None` at the end.
async fn some(
    from: &mut (impl AsyncBufRead + Unpin),
    at_most: usize,
    piece: &mut impl FnMut(&[u8]),
) -> io::Result<Option<usize>> {
    let there = from.fill_buf().await?;
    let taken = &there[..there.len().min(at_most)];
    piece(taken);
    Ok((!taken.is_empty()).then_some(taken.len()))
}

/// A line without its end.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(1 << 20).read_until(b'\n', &mut line).await?;
    let line = line.strip_suffix(b"\r\n").ok_or_else(broken)?;
    Ok(String::from_utf8_lossy(line).into_owned())
}

fn broken() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
