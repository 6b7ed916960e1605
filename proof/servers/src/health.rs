//! Health checks: one request and one reply over a new connection.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::kafka_protocol;

const BOUND: Duration = Duration::from_secs(2);

/// Sends `PING` and expects `+PONG`. A Redis that is still loading answers `-LOADING`; one that requires a password
/// is up as well.
pub(crate) fn redis(port: u16) -> Result<()> {
    let mut conversation = connect(port)?;
    conversation.get_mut().write_all(b"PING\r\n")?;
    expect(&mut conversation, &["+PONG", "-NOAUTH"])
}

/// Reads the greeting, sends `PING` and expects `PONG`. A server that requires a password is up as well.
pub(crate) fn nats(port: u16) -> Result<()> {
    let mut conversation = connect(port)?;
    expect(&mut conversation, &["INFO {"])?;
    conversation.get_mut().write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n")?;
    expect(&mut conversation, &["PONG", "-ERR 'Authorization Violation'"])
}

/// Asks for the brokers of the cluster, and expects the asked one among them: clients find it only there.
pub(crate) fn kafka(port: u16) -> Result<()> {
    let brokers = kafka_protocol::metadata(port)?.brokers;
    ensure!(brokers.contains(&port), "not among the registered brokers {brokers:?}");
    Ok(())
}

pub(crate) fn connect(port: u16) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), BOUND)?;
    stream.set_read_timeout(Some(BOUND))?;
    stream.set_write_timeout(Some(BOUND))?;
    Ok(BufReader::new(stream))
}

fn expect(conversation: &mut BufReader<TcpStream>, starts: &[&str]) -> Result<()> {
    let mut line = String::new();
    conversation.read_line(&mut line)?;
    let known = starts.iter().any(|start| line.starts_with(start));
    ensure!(known, "expected `{}`, got `{}`", starts.join("` or `"), line.trim_end());
    Ok(())
}
