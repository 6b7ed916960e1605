//! Two requests of Kafka's protocol, each over a new connection. For health checks and for the setup of tests.

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::health::connect;

/// A request: its key and a version that has neither compact texts nor tagged fields.
const METADATA: [i16; 2] = [3, 1];
const CREATE_TOPICS: [i16; 2] = [19, 4];

/// How long the creation of a topic may take.
const CREATE_BOUND: Duration = Duration::from_secs(30);

/// The longest reply that is read.
const LONGEST: usize = 1 << 24;

/// What one broker knows of its cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// The ports of the brokers that are registered and accept requests.
    pub(crate) brokers: Vec<u16>,
    /// The partitions of all topics.
    pub(crate) partitions: Vec<Partition>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) topic: String,
    pub(crate) index: i32,
    /// The id of the node that leads it, or -1.
    pub(crate) leader: i32,
    pub(crate) replicas: usize,
    /// How many of the replicas are in sync, the leader included.
    pub(crate) in_sync: usize,
}

/// Asks a broker for all that it knows.
pub(crate) fn metadata(port: u16) -> Result<Metadata> {
    let all_topics = (-1_i32).to_be_bytes();
    let body = ask(port, METADATA, &all_topics, None)?;
    read_metadata(&mut body.as_slice()).context("a reply to Metadata that cannot be read")
}

/// Creates a topic with as many replicas as the brokers' settings say.
pub(crate) fn create_topic(port: u16, name: &str, partitions: i32) -> Result<()> {
    let mut request = 1_i32.to_be_bytes().to_vec();
    write_text(&mut request, name)?;
    request.extend(partitions.to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    let no_assignments_and_no_settings = [0; 8];
    request.extend(no_assignments_and_no_settings);
    request.extend(i32::try_from(CREATE_BOUND.as_millis())?.to_be_bytes());
    let validate_only = false;
    request.push(validate_only.into());
    let body = ask(port, CREATE_TOPICS, &request, Some(CREATE_BOUND))?;
    let rest = &mut body.as_slice();
    let _throttled = int(rest)?;
    let results = list(rest, |rest| Ok((text(rest)?, short(rest)?, text(rest)?)))?;
    for (name, error, message) in results {
        ensure!(error == 0, "cannot create topic {name}: error {error}: {message}");
    }
    Ok(())
}

/// Sends one request and returns the reply after its header.
fn ask(port: u16, kind: [i16; 2], body: &[u8], bound: Option<Duration>) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    kind.iter().for_each(|part| message.extend(part.to_be_bytes()));
    let correlation = [0, 0, 0, 1];
    message.extend(correlation);
    write_text(&mut message, "semel")?;
    message.extend(body);
    let mut conversation = connect(port)?;
    if bound.is_some() {
        conversation.get_ref().set_read_timeout(bound)?;
    }
    conversation.get_mut().write_all(&u32::try_from(message.len())?.to_be_bytes())?;
    conversation.get_mut().write_all(&message)?;

    let mut length = [0; 4];
    conversation.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length))?;
    ensure!((4..LONGEST).contains(&length), "a reply of {length} bytes");
    let mut reply = vec![0; length];
    conversation.read_exact(&mut reply)?;
    ensure!(reply[..4] == correlation, "the reply belongs to another request");
    Ok(reply.split_off(4))
}

fn read_metadata(rest: &mut &[u8]) -> Result<Metadata> {
    let brokers = list(rest, |rest| {
        let (_id, _host, port, _rack) = (int(rest)?, text(rest)?, int(rest)?, text(rest)?);
        Ok(u16::try_from(port)?)
    })?;
    let _controller = int(rest)?;
    let topics = list(rest, |rest| {
        let (_error, name, _internal) = (short(rest)?, text(rest)?, take::<1>(rest)?);
        list(rest, |rest| partition(rest, &name))
    })?;
    Ok(Metadata { brokers, partitions: topics.into_iter().flatten().collect() })
}

fn partition(rest: &mut &[u8], topic: &str) -> Result<Partition> {
    let (_error, index, leader) = (short(rest)?, int(rest)?, int(rest)?);
    let (replicas, in_sync) = (list(rest, int)?.len(), list(rest, int)?.len());
    Ok(Partition { topic: topic.to_owned(), index, leader, replicas, in_sync })
}

fn list<T>(rest: &mut &[u8], item: impl Fn(&mut &[u8]) -> Result<T>) -> Result<Vec<T>> {
    let count = int(rest)?;
    (0..count).map(|_| item(rest)).collect()
}

/// A text. It is empty where the server sent none.
fn text(rest: &mut &[u8]) -> Result<String> {
    let length = usize::try_from(short(rest)?).unwrap_or(0);
    let (text, after) = rest.split_at_checked(length).context("the reply ends early")?;
    *rest = after;
    Ok(String::from_utf8(text.to_vec())?)
}

fn int(rest: &mut &[u8]) -> Result<i32> {
    take(rest).map(i32::from_be_bytes)
}

fn short(rest: &mut &[u8]) -> Result<i16> {
    take(rest).map(i16::from_be_bytes)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (taken, after) = rest.split_first_chunk().context("the reply ends early")?;
    *rest = after;
    Ok(*taken)
}

fn write_text(message: &mut Vec<u8>, text: &str) -> Result<()> {
    message.extend(i16::try_from(text.len())?.to_be_bytes());
    message.extend(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Kafka 4.3.1 sent: one broker, and a topic with one partition.
    const REPLY: &[u8] = b"\0\0\0\x01\0\0\0\x01\0\x09127.0.0.1\0\0q\xa4\xff\xff\0\0\0\x01\
        \0\0\0\x01\0\0\0\x04kept\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01";

    #[test]
    fn brokers_and_leaders_are_read() {
        let partition =
            Partition { topic: "kept".to_owned(), index: 0, leader: 1, replicas: 1, in_sync: 1 };
        let metadata = Metadata { brokers: vec![29092], partitions: vec![partition] };
        assert_eq!(read_metadata(&mut &*REPLY).unwrap(), metadata);
    }

    #[test]
    fn a_reply_that_ends_early_is_an_error() {
        for length in 0..REPLY.len() {
            assert!(read_metadata(&mut &REPLY[..length]).is_err(), "{length}");
        }
    }
}
