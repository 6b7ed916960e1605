//! Sends one command to a Redis and returns the reply as text. For the setup of tests, not for measurements.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};

use crate::health::connect;

/// The longest reply that is read.
const LONGEST: usize = 1 << 24;

/// The reply: one line per element of a list, and an empty text for nil.
pub(crate) fn ask(port: u16, command: &[&str]) -> Result<String> {
    let mut conversation = connect(port)?;
    let mut request = format!("*{}\r\n", command.len());
    for word in command {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    conversation.get_mut().write_all(request.as_bytes())?;
    answer(&mut conversation).with_context(|| format!("`{}`", command.join(" ")))
}

fn answer(conversation: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    conversation.read_line(&mut line)?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("+" | ":", text)) => Ok(text.to_owned()),
        Some(("-", message)) => bail!("{message}"),
        Some(("$", length)) => bulk(conversation, length),
        Some(("*", count)) => {
            let count: i64 = count.parse()?;
            let parts: Result<Vec<_>> = (0..count.max(0)).map(|_| answer(conversation)).collect();
            Ok(parts?.join("\n"))
        }
        Some(_) | None => bail!("a reply of an unknown type: `{line}`"),
    }
}

fn bulk(conversation: &mut BufReader<TcpStream>, length: &str) -> Result<String> {
    let Ok(length) = usize::try_from(length.parse::<i64>()?) else { return Ok(String::new()) };
    let mut text = vec![0; length.min(LONGEST)];
    conversation.read_exact(&mut text)?;
    conversation.read_exact(&mut [0; 2])?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
