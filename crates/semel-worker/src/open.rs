//! Opens sources, dead letters and publishers by URL, or only looks at them. `broker.rs` has the brokers.

mod broker;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod postgres;
mod shared;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Result, anyhow};
use semel::{Finding, Redacted};
use semel_consumer::{
    ConsumerPlan, ExaminedSource,
    dead_letter::{DeadLetter, DeadLetterQueue, FileDeadLetters, MessagePublisher},
};
use semel_service::settings::{DeadLetterTarget, WorkerConfig};

use self::broker::{Broker, broker_of};
pub use self::shared::{SharedSink, SharedSource};

const SOURCE: &str = "--source";
const DEAD_LETTER: &str = "--dead-letter";
const TO: &str = "--to";

/// What to do if the table, the stream or the topic of dead letters does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// It is created; a stream or a topic only if its URL says so.
    Create,
    /// A stream or a topic is created if its URL says so. A table has to exist.
    CreateIfRequested,
    /// It has to exist.
    Fail,
}

/// Where dead letters are.
enum Sink {
    Folder,
    Postgres,
    Broker(&'static dyn Broker),
}

impl Sink {
    fn of(url: &str) -> Result<Self> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("file") => Ok(Self::Folder),
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some(_) | None => broker_of(url).map(Self::Broker),
        }
    }
}

/// Checks the URLs of the settings, as far as that is possible without a connection. Returns all problems.
#[must_use]
pub fn check_urls(config: &WorkerConfig) -> Vec<String> {
    check_each(config.source.as_ref(), config.dead_letters.as_ref())
}

/// The problems of the URLs of a source and of dead letters.
#[must_use]
pub fn check_each(
    source: Option<&Redacted<String>>,
    dead_letters: Option<&DeadLetterTarget>,
) -> Vec<String> {
    let source = source.map(|url| (check_source(url.expose()), SOURCE));
    let sink = match dead_letters {
        Some(DeadLetterTarget::Url(url)) => Some((check_dead_letters(url.expose()), DEAD_LETTER)),
        Some(DeadLetterTarget::Drop) | None => None,
    };
    let checked = source.into_iter().chain(sink);
    checked.filter_map(|(result, setting)| Some(format!("{setting}: {}", result.err()?))).collect()
}

fn check_source(url: &str) -> Result<()> {
    broker_of(url)?.check_source(url)
}

fn check_dead_letters(url: &str) -> Result<()> {
    match Sink::of(url)? {
        Sink::Folder => folder(url).map(drop),
        Sink::Postgres => postgres::check(url),
        Sink::Broker(broker) => broker.check_dead_letters(url),
    }
}

/// Connects to a source.
///
/// # Errors
///
/// Why it cannot be opened, with the setting to look at.
pub async fn source(url: &Redacted<String>) -> Result<SharedSource> {
    let url = url.expose();
    let opened = async { broker_of(url)?.source(url).await }.await;
    opened.map(SharedSource).map_err(|error| named(&error, SOURCE))
}

/// Opens dead letters, to write and to read them.
///
/// # Errors
///
/// Why they cannot be opened, with the setting to look at.
pub async fn dead_letters(
    url: &Redacted<String>,
    on_missing: OnMissing,
) -> Result<Arc<dyn DeadLetterQueue>> {
    let url = url.expose();
    let opened = async {
        match Sink::of(url)? {
            Sink::Folder => open_folder(url).await,
            Sink::Postgres => postgres::open(url, on_missing).await,
            Sink::Broker(broker) => broker.dead_letters(url, on_missing).await,
        }
    };
    opened.await.map_err(|error| named(&error, DEAD_LETTER))
}

/// Connects to a broker, to publish messages again.
///
/// # Errors
///
/// Why it cannot be reached, with the setting to look at.
pub async fn publisher(url: &Redacted<String>) -> Result<Arc<dyn MessagePublisher>> {
    let url = url.expose();
    let opened = async { broker_of(url)?.publisher(url).await }.await;
    opened.map_err(|error| named(&error, TO))
}

/// Looks at a source, without receiving from it.
pub(crate) async fn examine_source(url: &str, plan: &ConsumerPlan) -> Result<ExaminedSource> {
    broker_of(url)?.examine_source(url, plan).await
}

/// Looks at dead letters. Creates nothing.
pub(crate) async fn examine_dead_letters(url: &str) -> Result<Vec<Finding>> {
    match Sink::of(url)? {
        // Opening a folder would remove what its worker has begun to write.
        Sink::Folder => Ok(vec![examine_folder(&folder(url)?)]),
        Sink::Postgres => {
            let letters = postgres::open(url, OnMissing::Fail).await?;
            letters.check().await?;
            Ok(vec![Finding::good(format!("{} is reachable", letters.name()))])
        }
        Sink::Broker(broker) => broker.examine_dead_letters(url).await,
    }
}

fn examine_folder(folder: &Path) -> Finding {
    let shown = folder.display();
    match folder.metadata() {
        Ok(found) if found.is_dir() => Finding::good(format!("{shown} is a folder")),
        Ok(_) => Finding::bad(format!("{shown} is no folder"), "name another folder"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::good(format!("{shown} does not exist yet; the first start makes it"))
        }
        Err(error) => {
            Finding::bad(format!("cannot read {shown}: {error}"), "allow this user to read it")
        }
    }
}

async fn open_folder(url: &str) -> Result<Arc<dyn DeadLetterQueue>> {
    Ok(Arc::new(FileDeadLetters::open(folder(url)?).await?))
}

/// Removes a letter without publishing its message, and logs the reason as a redrive does. False if the letter has
/// changed meanwhile.
///
/// # Errors
///
/// When the letter may still be there.
pub async fn discard(
    letters: &dyn DeadLetterQueue,
    letter: &DeadLetter,
    reason: &str,
) -> Result<bool> {
    let removed = letters.remove(letter).await?;
    if removed {
        // The target of every change that an operator makes to dead letters.
        tracing::info!(
            target: "semel_consumer::dead_letter::redrive",
            id = letter.id,
            reason,
            "dead letter discarded"
        );
    }
    Ok(removed)
}

/// The folder that a URL names. The URL of a store has the same rules.
///
/// # Errors
///
/// When it names none.
pub fn folder(url: &str) -> Result<PathBuf> {
    let url: semel::StoreUrl = url.parse()?;
    let folder = url.folder().map(PathBuf::from);
    folder.ok_or_else(|| anyhow!("names no folder; write file:FOLDER"))
}

fn named(error: &anyhow::Error, setting: &str) -> anyhow::Error {
    anyhow!("{error} ({setting})")
}
