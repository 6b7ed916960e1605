//! Opens sources, dead letters and publishers by URL. A new broker is added here and in the list of schemes of
//! `semel-service`.

mod postgres;
mod shared;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Result, anyhow};
use semel::Redacted;
use semel_consumer::dead_letter::{DeadLetter, DeadLetterQueue, FileDeadLetters, MessagePublisher};
use semel_service::settings::{DeadLetterTarget, WorkerConfig};
#[cfg(feature = "nats")]
use semel_source_nats::{NatsDeadLetters, NatsPublisher, NatsSource};

pub use self::shared::{SharedSink, SharedSource};

const SOURCE: &str = "--source";
const DEAD_LETTER: &str = "--dead-letter";
const TO: &str = "--to";

/// Whether a table or a stream of dead letters may be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// It is created if it does not exist; a stream only if its URL says so.
    Create,
    /// It has to exist.
    Existing,
}

/// The kind of server that a URL names.
enum Scheme {
    File,
    Postgres,
    Nats,
}

fn scheme(url: &str) -> Result<Scheme> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("file") => Ok(Scheme::File),
        Some("postgres" | "postgresql") => Ok(Scheme::Postgres),
        Some("nats" | "nats+tls") => Ok(Scheme::Nats),
        Some(_) | None => Err(anyhow!("the URL has no known scheme")),
    }
}

/// Checks the URLs of the settings, as far as that is possible without a connection. Returns all problems.
#[must_use]
pub fn check_urls(config: &WorkerConfig) -> Vec<String> {
    let source = config.source.as_ref().map(|url| (check_source(url.expose()), SOURCE));
    let sink = match &config.dead_letters {
        Some(DeadLetterTarget::Url(url)) => Some((check_dead_letters(url.expose()), DEAD_LETTER)),
        Some(DeadLetterTarget::Drop) | None => None,
    };
    let checked = source.into_iter().chain(sink);
    checked.filter_map(|(result, setting)| Some(format!("{setting}: {}", result.err()?))).collect()
}

fn check_source(url: &str) -> Result<()> {
    match scheme(url)? {
        #[cfg(feature = "nats")]
        Scheme::Nats => Ok(NatsSource::builder(url).validate()?),
        #[cfg(not(feature = "nats"))]
        Scheme::Nats => Err(not_built(SOURCE)),
        Scheme::File | Scheme::Postgres => Err(no_source()),
    }
}

fn check_dead_letters(url: &str) -> Result<()> {
    match scheme(url)? {
        Scheme::File => folder(url).map(drop),
        Scheme::Postgres => postgres::check(url),
        #[cfg(feature = "nats")]
        Scheme::Nats => Ok(NatsDeadLetters::builder(url).validate()?),
        #[cfg(not(feature = "nats"))]
        Scheme::Nats => Err(not_built(DEAD_LETTER)),
    }
}

/// Connects to a source.
///
/// # Errors
///
/// Why it cannot be opened, with the setting to look at.
pub async fn source(url: &Redacted<String>) -> Result<SharedSource> {
    match scheme(url.expose()).map_err(|error| named(error, SOURCE))? {
        #[cfg(feature = "nats")]
        Scheme::Nats => {
            let opened = NatsSource::connect(url.expose()).await;
            Ok(SharedSource(Arc::new(opened.map_err(|error| named(error, SOURCE))?)))
        }
        #[cfg(not(feature = "nats"))]
        Scheme::Nats => Err(not_built(SOURCE)),
        Scheme::File | Scheme::Postgres => Err(named(no_source(), SOURCE)),
    }
}

/// Opens dead letters, to write and to read them.
///
/// # Errors
///
/// Why they cannot be opened, with the setting to look at.
pub async fn dead_letters(
    url: &Redacted<String>,
    tables: Tables,
) -> Result<Arc<dyn DeadLetterQueue>> {
    let text = url.expose();
    let opened: Result<Arc<dyn DeadLetterQueue>> =
        match scheme(text).map_err(|error| named(error, DEAD_LETTER))? {
            Scheme::File => open_folder(text).await,
            Scheme::Postgres => postgres::open(text, tables).await,
            #[cfg(feature = "nats")]
            Scheme::Nats => open_stream(text, tables).await,
            #[cfg(not(feature = "nats"))]
            Scheme::Nats => return Err(not_built(DEAD_LETTER)),
        };
    opened.map_err(|error| named(error, DEAD_LETTER))
}

/// Connects to a broker, to publish messages again.
///
/// # Errors
///
/// Why it cannot be reached, with the setting to look at.
pub async fn publisher(url: &Redacted<String>) -> Result<Arc<dyn MessagePublisher>> {
    match scheme(url.expose()).map_err(|error| named(error, TO))? {
        #[cfg(feature = "nats")]
        Scheme::Nats => {
            let opened = NatsPublisher::connect(url.expose()).await;
            Ok(Arc::new(opened.map_err(|error| named(error, TO))?))
        }
        #[cfg(not(feature = "nats"))]
        Scheme::Nats => Err(not_built(TO)),
        Scheme::File | Scheme::Postgres => Err(named(no_source(), TO)),
    }
}

async fn open_folder(url: &str) -> Result<Arc<dyn DeadLetterQueue>> {
    Ok(Arc::new(FileDeadLetters::open(folder(url)?).await?))
}

#[cfg(feature = "nats")]
async fn open_stream(url: &str, tables: Tables) -> Result<Arc<dyn DeadLetterQueue>> {
    let letters = NatsDeadLetters::builder(url);
    let letters = match tables {
        Tables::Create => letters,
        Tables::Existing => letters.create(false),
    };
    Ok(Arc::new(letters.connect().await?))
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

fn no_source() -> anyhow::Error {
    anyhow!("names no broker; write nats://HOST:PORT/STREAM/CONSUMER")
}

fn named(error: impl std::fmt::Display, setting: &str) -> anyhow::Error {
    anyhow!("{error} ({setting})")
}

#[cfg(not(feature = "nats"))]
fn not_built(setting: &str) -> anyhow::Error {
    anyhow!("NATS is not in this build ({setting})")
}
