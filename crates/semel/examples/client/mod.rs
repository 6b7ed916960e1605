//! A client for the examples: sends a request as curl would, and prints the answer.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Sends `body` with a key, prints the status and the answer, and returns the body of the answer.
pub(crate) async fn post(
    server: SocketAddr,
    path: &str,
    key: &str,
    body: &str,
) -> io::Result<String> {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nAuthorization: Bearer ann\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nIdempotency-Key: {key}\r\n\r\n{body}"
    );
    let mut connection = TcpStream::connect(server).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let replayed = head.to_ascii_lowercase().contains("idempotent-replayed: true");
    let status = head.lines().next().unwrap_or_default();
    println!(
        "{key} {body_sent}\n  {status}{mark}\n  {body}",
        body_sent = request.lines().last().unwrap_or_default(),
        mark = if replayed { ", replayed" } else { "" }
    );
    Ok(body.to_owned())
}
