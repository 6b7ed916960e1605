//! Dead letters in a JetStream stream: one subject for each letter, with one message.
//!
//! The stream replaces a letter by a later one with the same id because it keeps one message for each subject, or
//! because the message says so (`Nats-Rollup`). No `Nats-Msg-Id` is set: within the duplicate window of the stream, it
//! would suppress a later letter. Publishing a letter twice is harmless without it.

mod config;
mod subject;

use std::{fmt, time::Duration};

use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use semel_consumer::{
    Message,
    dead_letter::{DeadLetter, DeadLetterQueue, DeadLetterSink},
};
use semel_core::{Error, Finding, Header, Result};

pub use self::config::NatsDeadLettersBuilder;
use self::{
    config::DeadLetterSettings,
    subject::{captures, subject_of},
};
use crate::{
    connection::Connection,
    error::{self, RequestError},
    headers,
    jetstream::{GetMessage, JetStream, NewStream, StoredMessage, StreamConfig},
};

/// Replaces the earlier messages of the subject.
const ROLLUP: (&str, &str) = ("Nats-Rollup", "sub");
/// Makes the server refuse the message if another stream captures the subject.
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";

/// Dead letters in a JetStream stream.
///
/// A letter is the message itself, with its payload, its headers, and headers that begin with `Semel-Dead-Letter-`. Its
/// subject is `SUBJECT.ID`.
#[derive(Clone)]
pub struct NatsDeadLetters {
    connection: Connection,
    settings: DeadLetterSettings,
    replaces: Replaces,
}

/// How a letter replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaces {
    /// The stream keeps one message for each subject.
    ByLimit,
    /// Each message says so.
    ByRollup,
}

impl NatsDeadLetters {
    /// Connects to `nats://[USER:PASSWORD@]HOST[:PORT]/STREAM?subject=SUBJECT`. The stream has to capture `SUBJECT.>`;
    /// without `?subject=`, that is the name of the stream.
    ///
    /// # Errors
    ///
    /// As [`NatsDeadLettersBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings that a URL does not have, or that override it.
    pub fn builder(url: &str) -> NatsDeadLettersBuilder {
        NatsDeadLettersBuilder::new(url)
    }

    /// Dead letters on a connection that the caller has opened.
    pub fn from_client(client: Client, stream: impl Into<String>) -> NatsDeadLettersBuilder {
        NatsDeadLettersBuilder::from_client(client, stream.into())
    }

    async fn open(settings: DeadLetterSettings) -> Result<Self> {
        let connection = settings.connector.connect(settings.domain.as_deref()).await?;
        let opened = Self::on(connection.clone(), settings).await;
        if opened.is_err() {
            // Otherwise the driver would keep the connection for ever. The first error is the one that matters.
            let _ = connection.close().await;
        }
        opened
    }

    async fn on(connection: Connection, settings: DeadLetterSettings) -> Result<Self> {
        let config = existing_stream(&connection.jetstream, &settings).await?;
        let replaces = replacement(&config, &settings)?;
        Ok(Self { connection, settings, replaces })
    }

    async fn examine(settings: &DeadLetterSettings) -> Result<Vec<Finding>> {
        let connection = settings.connector.connect(settings.domain.as_deref()).await?;
        let examined = examined(&connection.jetstream, settings).await;
        let closed = connection.close().await;
        examined.and_then(|findings| closed.map(|()| findings))
    }

    fn jetstream(&self) -> &JetStream {
        &self.connection.jetstream
    }

    async fn stored(&self, which: &GetMessage<'_>) -> Result<Option<StoredMessage>> {
        self.jetstream().message(&self.settings.stream, which).await
    }

    /// The message with the letter of this id.
    async fn last(&self, id: &str) -> Result<Option<StoredMessage>> {
        let subject = subject_of(&self.settings.subject, id);
        self.stored(&GetMessage { last_by_subj: Some(&subject), ..GetMessage::default() }).await
    }

    /// The sequence behind the letter with the id `after`.
    async fn first_sequence(&self, after: Option<&str>) -> Result<u64> {
        let Some(after) = after else { return Ok(1) };
        let message = self.last(after).await?.ok_or_else(|| {
            Error::invalid(format!(
                "nats: there is no letter {after:?} to list after any more; list again from the start"
            ))
        })?;
        Ok(message.sequence + 1)
    }
}

#[async_trait]
impl DeadLetterSink for NatsDeadLetters {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        let message = letter.to_message();
        let mut map = HeaderMap::new();
        for Header { name, value } in &message.headers {
            headers::append_escaped(&mut map, name, value);
        }
        map.insert(EXPECTED_STREAM, self.settings.stream.as_str());
        if self.replaces == Replaces::ByRollup {
            map.insert(ROLLUP.0, ROLLUP.1);
        }
        let subject = subject_of(&self.settings.subject, &letter.id);
        let published = self.jetstream().publish(&subject, map, message.body).await;
        published.map(drop).map_err(|error| match error {
            RequestError::NoResponders => error::not_captured(&subject),
            error => error.about(&format!("stream {}", self.settings.stream)),
        })
    }

    /// The stream exists, captures the subjects of the letters and keeps the last one of each.
    async fn check(&self) -> Result<()> {
        let info = self.jetstream().stream_info(&self.settings.stream).await?;
        let info = info.ok_or_else(|| no_stream(&self.settings))?;
        if replacement(&info.config, &self.settings)? == self.replaces {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "nats: the settings of stream {} have changed since the start; start the worker again",
            self.settings.stream
        )))
    }

    fn name(&self) -> String {
        format!("nats {}", self.settings.stream)
    }
}

#[async_trait]
impl DeadLetterQueue for NatsDeadLetters {
    /// Messages that are no letters are left out.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>> {
        let all = format!("{}.>", self.settings.subject);
        let (mut letters, mut next) = (Vec::new(), self.first_sequence(after).await?);
        while letters.len() < limit {
            let which =
                GetMessage { seq: Some(next), next_by_subj: Some(&all), ..GetMessage::default() };
            let Some(message) = self.stored(&which).await? else { break };
            next = message.sequence + 1;
            match read(message) {
                Ok(letter) => letters.push(letter),
                Err(error) => {
                    tracing::warn!(%error, sequence = next - 1, "nats: not a readable dead letter")
                }
            }
        }
        Ok(letters)
    }

    async fn get(&self, id: &str) -> Result<Option<DeadLetter>> {
        self.last(id).await?.map(read).transpose()
    }

    /// By its sequence in the stream, which a later letter does not have.
    async fn remove(&self, letter: &DeadLetter) -> Result<bool> {
        let Some(message) = self.last(&letter.id).await? else { return Ok(false) };
        let sequence = message.sequence;
        if !read(message)?.is_copy_of(letter) {
            return Ok(false);
        }
        self.jetstream().delete_message(&self.settings.stream, sequence).await
    }
}

async fn examined(jetstream: &JetStream, settings: &DeadLetterSettings) -> Result<Vec<Finding>> {
    let name = &settings.stream;
    let Some(info) = jetstream.stream_info(name).await? else {
        if !settings.create {
            return Err(no_stream(settings));
        }
        let what = format!("stream {name} does not exist yet; the first start creates it");
        return Ok(vec![Finding::good(what)]);
    };
    replacement(&info.config, settings)?;
    let max_age = Duration::from_nanos(info.config.max_age);
    if max_age.is_zero() {
        let what = format!("stream {name} keeps letters without a limit of time");
        return Ok(vec![Finding::good(what)]);
    }
    Ok(vec![Finding::warning(
        format!("stream {name} removes a letter after {max_age:?} (max_age)"),
        format!("look at the letters before, or keep them: nats stream edit {name} --max-age=-1"),
    )])
}

fn read(message: StoredMessage) -> Result<DeadLetter> {
    let headers = headers::unescaped(message.headers.into_iter().filter(is_kept).collect());
    DeadLetter::from_message(&Message { headers, body: message.payload, ..Message::default() })
}

/// The headers for the server are not those of the letter: the letter's own ones are escaped.
fn is_kept(header: &Header) -> bool {
    !headers::is_instruction(&header.name)
}

async fn existing_stream(
    jetstream: &JetStream,
    settings: &DeadLetterSettings,
) -> Result<StreamConfig> {
    if let Some(info) = jetstream.stream_info(&settings.stream).await? {
        return Ok(info.config);
    }
    if !settings.create {
        return Err(no_stream(settings));
    }
    let stream = NewStream {
        name: &settings.stream,
        subjects: [format!("{}.>", settings.subject)],
        retention: "limits",
        storage: "file",
        // A full stream refuses letters: their messages are then not acknowledged, and nothing is lost.
        discard: "new",
        num_replicas: settings.replicas.unwrap_or_else(|| default_replicas(jetstream)),
        max_msgs_per_subject: 1,
        max_msgs: -1,
        max_bytes: -1,
        max_age: 0,
        allow_direct: true,
    };
    Ok(jetstream.create_stream(&stream).await?.config)
}

fn default_replicas(jetstream: &JetStream) -> u8 {
    if jetstream.client.server_info().cluster.is_some() { 3 } else { 1 }
}

fn no_stream(settings: &DeadLetterSettings) -> Error {
    let DeadLetterSettings { stream, subject, .. } = settings;
    Error::invalid(format!(
        "nats: there is no stream {stream} for dead letters; make it (nats stream add {stream} --subjects \
         '{subject}.>' --max-msgs-per-subject=1 --discard new), or ask for it with ?create=true"
    ))
}

/// How a letter replaces an earlier one in this stream. Refuses an unfit stream, naming each setting to change.
fn replacement(config: &StreamConfig, settings: &DeadLetterSettings) -> Result<Replaces> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    must(config.mirror.is_none(), "it is a mirror; name the stream that it copies".to_owned());
    must(!config.sealed, "it is sealed; name another".to_owned());
    must(!config.no_ack, "no_ack leaves letters unconfirmed; unset it".to_owned());
    must(
        config.subjects.iter().any(|captured| captures(captured, &settings.subject)),
        format!("it does not capture {0}.>; add this subject, or set ?subject=", settings.subject),
    );
    must(
        config.storage != "memory",
        "storage memory forgets letters on a restart; make it with storage file".to_owned(),
    );
    must(
        config.subject_transform.is_none(),
        "subject_transform stores letters under other subjects; unset it".to_owned(),
    );
    must(
        config.retention == "limits",
        format!(
            "retention {} removes letters that are acknowledged; set retention limits",
            config.retention
        ),
    );
    must(
        !config.discard_new_per_subject,
        "discard_new_per_subject refuses a later letter with the same id; unset it".to_owned(),
    );
    must(
        config.max_msgs_per_subject == 1 || config.allow_rollup_hdrs,
        "it keeps several letters with one id; set max_msgs_per_subject to 1, or allow_rollup_hdrs"
            .to_owned(),
    );
    if !wrong.is_empty() {
        return Err(Error::invalid(format!(
            "nats: stream {}: {}",
            settings.stream,
            wrong.join("; ")
        )));
    }
    Ok(if config.max_msgs_per_subject == 1 { Replaces::ByLimit } else { Replaces::ByRollup })
}

impl fmt::Debug for NatsDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeadLetterSettings { stream, subject, .. } = &self.settings;
        f.debug_struct("NatsDeadLetters")
            .field("stream", stream)
            .field("subject", subject)
            .finish_non_exhaustive()
    }
}
