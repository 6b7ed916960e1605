//! One command to a Redis, one answer as text. For chores of tests; never for what is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};

use crate::health::connect;

/// Longest answer that is read.
const LONGEST: usize = 1 << 24;

/// The answer; the parts of a list are lines, and nothing is an empty text.
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
        Some(("-", complaint)) => bail!("{complaint}"),
        Some(("$", length)) => bulk(conversation, length),
        Some(("*", count)) => {
            let count: i64 = count.parse()?;
            let parts: Result<Vec<_>> = (0..count.max(0)).map(|_| answer(conversation)).collect();
            Ok(parts?.join("\n"))
        }
        Some(_) | None => bail!("an answer in an unknown form: `{line}`"),
    }
}

fn bulk(conversation: &mut BufReader<TcpStream>, length: &str) -> Result<String> {
    let Ok(length) = usize::try_from(length.parse::<i64>()?) else { return Ok(String::new()) };
    let mut text = vec![0; length.min(LONGEST)];
    conversation.read_exact(&mut text)?;
    conversation.read_exact(&mut [0; 2])?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
