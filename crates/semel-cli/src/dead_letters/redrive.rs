//! `semel dead-letters redrive`.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::{ArgGroup, Args};
use semel_consumer::dead_letter::{
    DeadLetterQueue, Redrive, RedriveError, RedriveRefusal, Redriven, ReopenedKey,
};
use semel_service::settings::{DeadLetterFlags, DeadLettersConfig, GatewayConfig};
use semel_worker::open;
use serde_json::{Value, json};

use super::{checked_reason, list, open_letters};
use crate::{
    show,
    store_command::{UsageError, open_store},
};

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").args(["ids", "all"]).required(true)))]
pub(crate) struct RedriveCommand {
    /// The ids of the dead letters
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// All dead letters that are there now
    #[arg(long)]
    all: bool,
    /// Also those of events that were attempted and have no record in the store, such as after the retention. First
    /// make sure that --store and --namespace are those of the worker
    #[arg(long)]
    without_record: bool,
    /// Why, for the log on stderr
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Write JSON, one line for each dead letter
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: DeadLetterFlags,
}

/// How often the progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

impl RedriveCommand {
    pub(super) async fn run(&self, config: DeadLettersConfig) -> Result<ExitCode> {
        let reason = checked_reason(&self.reason)?;
        let Some(to) = &config.to else {
            bail!(UsageError(
                "no broker to publish to; name the source of the worker with --to nats://HOST:PORT/STREAM/CONSUMER \
                 or --to kafka://HOST:PORT/TOPIC"
                    .to_owned()
            ));
        };
        let namespace = namespace(&config)?;
        let letters = open_letters(&config).await?;
        let engine = open_store(&config.store).await?;
        let publisher = open::publisher(to).await?;
        let ids = self.ids(&*letters).await?;
        let redrive = Redrive::new(engine, namespace, letters, publisher);
        let redrive = redrive.without_record(self.without_record);
        self.redrive_each(&redrive, &ids, reason).await
    }

    /// The letters that are there now: those of events that fail again meanwhile are not redriven again.
    async fn ids(&self, letters: &dyn DeadLetterQueue) -> Result<Vec<String>> {
        if !self.all {
            return Ok(self.ids.clone());
        }
        let mut ids = Vec::new();
        list::each(letters, None, usize::MAX, |letter| ids.push(letter.id.clone())).await?;
        Ok(ids)
    }

    async fn redrive_each(
        &self,
        redrive: &Redrive,
        ids: &[String],
        reason: &str,
    ) -> Result<ExitCode> {
        let (total, mut failed, mut shown_at) = (ids.len(), 0, Instant::now());
        for (at, id) in ids.iter().enumerate() {
            let result = redrive.redrive(id, reason).await;
            let mut code = crate::print(&self.shown(id, &result));
            if let Err(error) = &result {
                failed += 1;
                crate::complain(format_args!("error: {id}: {error}{}", flags_of(error)));
                if is_server_down(error) {
                    code = ExitCode::FAILURE;
                }
            }
            if code != ExitCode::SUCCESS {
                let left = total - at - 1;
                crate::complain(format_args!("{}/{total}, {left} not tried", at + 1));
                return Ok(ExitCode::FAILURE);
            }
            if shown_at.elapsed() >= PROGRESS_EVERY {
                shown_at = Instant::now();
                crate::complain(format_args!("{}/{total}", at + 1));
            }
        }
        let done = total - failed;
        crate::complain(format_args!("{done}/{total} redriven"));
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// What is written to stdout.
    fn shown(&self, id: &str, result: &Result<Redriven, RedriveError>) -> String {
        match (self.json, result) {
            (true, _) => show::line(&json_of(id, result)),
            (false, Ok(redriven)) => text_of(redriven),
            (false, Err(_)) => String::new(),
        }
    }
}

/// The namespace of the worker, in which ordering keys are parked.
fn namespace(config: &DeadLettersConfig) -> Result<String> {
    match &config.store.namespace {
        Some(namespace) => Ok(namespace.clone()),
        None if config.store.url.is_shared() => bail!(UsageError(
            "no namespace: name that of the worker with --namespace, or set SEMEL_NAMESPACE"
                .to_owned()
        )),
        None => Ok(GatewayConfig::NAMESPACE.to_owned()),
    }
}

/// The flags that the fix of an error is about.
const fn flags_of(error: &RedriveError) -> &'static str {
    match error {
        RedriveError::Refused(RedriveRefusal::NotRecorded) => {
            " (--store, --namespace, --without-record)"
        }
        _ => "",
    }
}

/// True for an error that the next letter would get, too.
const fn is_server_down(error: &RedriveError) -> bool {
    matches!(
        error,
        RedriveError::Unavailable(_) | RedriveError::NotConfirmed(_) | RedriveError::NotRemoved(_)
    )
}

fn json_of(id: &str, result: &Result<Redriven, RedriveError>) -> Value {
    match result {
        Ok(redriven) => json!({
            "id": id,
            "redriven": true,
            "record": record(redriven.key),
            "unparked": redriven.unparked,
            "removed": redriven.removed,
        }),
        Err(error) => json!({"id": id, "redriven": false, "error": error.to_string()}),
    }
}

fn text_of(redriven: &Redriven) -> String {
    let Redriven { id, unparked, removed, .. } = redriven;
    let unparked = if *unparked { "; its ordering key is open again" } else { "" };
    let kept = if *removed { "" } else { "; it was replaced or removed meanwhile" };
    format!("redriven: {id}{unparked}{kept}\n")
}

fn record(key: ReopenedKey) -> &'static str {
    match key {
        ReopenedKey::NoRecord => "none",
        ReopenedKey::Unchanged => "unchanged",
        ReopenedKey::Forgotten => "forgotten",
        ReopenedKey::Reopened => "reopened",
        _ => "changed",
    }
}
