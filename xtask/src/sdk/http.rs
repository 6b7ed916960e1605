//! The part of HTTP/1.1 that the upstream needs: requests and responses with a Content-Length.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

/// Limits far above what the SDKs send.
const MAX_HEAD: u64 = 64 * 1024;
const MAX_BODY: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) struct UpstreamRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl UpstreamRequest {
    /// The next request of a connection, or `None` when the client closed it.
    pub(crate) fn read(stream: &mut BufReader<TcpStream>) -> Result<Option<Self>> {
        let Some(head) = head(stream)? else { return Ok(None) };
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let (method, path) = words.next().zip(words.next()).context("no request line")?;
        let headers = lines.filter_map(header).collect();
        let mut request = Self { method, path, headers, body: Vec::new() };
        let length: u64 = request.header("content-length").unwrap_or("0").parse()?;
        ensure!(length <= MAX_BODY, "a body of {length} bytes");
        stream.take(length).read_to_end(&mut request.body)?;
        ensure!(request.body.len() as u64 == length, "the connection closed within a body");
        Ok(Some(request))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// Sends a response; the connection stays open.
pub(crate) fn respond(
    stream: &mut TcpStream,
    status: &str,
    body: &serde_json::Value,
) -> Result<()> {
    let body = body.to_string();
    let length = body.len();
    let head = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    Ok(stream.write_all(format!("HTTP/1.1 {status}\r\n{head}\r\n{body}").as_bytes())?)
}

/// Everything before the empty line.
fn head(stream: &mut BufReader<TcpStream>) -> Result<Option<String>> {
    let mut head = String::new();
    let mut limited = stream.take(MAX_HEAD);
    loop {
        let before = head.len();
        match limited.read_line(&mut head) {
            Ok(0) if before == 0 => return Ok(None),
            Err(error) if before == 0 && error.kind() == ErrorKind::ConnectionReset => {
                return Ok(None);
            }
            read => ensure!(read? > 0, "the connection closed within a head"),
        }
        if &head[before..] == "\r\n" {
            return Ok(Some(head));
        }
    }
}

fn header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    Some((name.to_ascii_lowercase(), value.trim().to_owned()))
}
