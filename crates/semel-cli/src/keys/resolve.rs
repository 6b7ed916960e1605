//! `semel keys resolve`: an operator decides about a key that waits for one.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use semel::{
    Current, Decision, Effect, Engine, KeyHash, Record, Resolution, ResolveRequest, Sighting,
};
use serde_json::json;

use super::{answer::Answer, name::Name, reason::Reason};
use crate::{
    settings::{StoreConfig, StoreFlags, Time},
    show,
    store::Usage,
};

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("decision").required(true))]
pub(crate) struct Resolve {
    #[command(flatten)]
    name: Name,
    /// It took effect: record this answer. FILE is its body, - for stdin
    #[arg(long, value_name = "FILE", group = "decision")]
    complete: Option<PathBuf>,
    /// It did not take effect and is not to be tried again: record a final failure
    #[arg(long, group = "decision")]
    fail: bool,
    /// It may run again: the next request with the same payload runs it, with the same downstream key
    #[arg(long, group = "decision")]
    rerun: bool,
    /// With --rerun: it certainly did not take effect, so a request with another payload may run, too
    #[arg(long, conflicts_with_all = ["complete", "fail"])]
    no_effect: bool,
    #[command(flatten)]
    answer: Answer,
    /// Wait so long for the lease of an owner that may be lost to end
    #[arg(long, value_name = "TIME")]
    wait: Option<Time>,
    #[command(flatten)]
    reason: Reason,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// A lease that was about to end is over after that.
const PAUSE: Duration = Duration::from_millis(50);

impl Resolve {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        let reason = self.reason.text()?;
        let engine = config.open().await?;
        // Before the key is looked for: what is wrong with the answer is wrong for every key.
        let decision = self.decision(engine.store().info().max_outcome_bytes)?;
        let key = self.name.find(&config, &engine).await?;
        match self.decide(&config, &engine, &key, &decision).await? {
            Resolution::Done => {}
            Resolution::Missing => bail!("there is no record of key {key}; nothing was changed"),
            Resolution::Refused(current) => {
                bail!("key {key} {}; nothing was changed", standing(&current));
            }
        }
        let (word, then) = self.done();
        let (hash, reason) = (key.to_hex(), show::plain(reason));
        Ok(crate::print(&match self.json {
            true => show::line(&json!({"key": hash, "resolved": word, "reason": reason})),
            false => format!("resolved: {hash}, {word} ({reason}); {then}\n"),
        }))
    }

    fn decision(&self, most: usize) -> Result<Decision> {
        Ok(match &self.complete {
            Some(file) => Decision::Complete(Arc::new(self.answer.success(file, most)?)),
            None if self.fail => Decision::Complete(Arc::new(self.answer.failure(most)?)),
            None if self.no_effect => Decision::Reopen(Effect::None),
            None => Decision::Reopen(Effect::Possible),
        })
    }

    /// Decides about the key as it stands now. A lease is waited for where that was asked for: the store says when
    /// it is over, and some only to those that have asked before.
    async fn decide(
        &self,
        config: &StoreConfig,
        engine: &Engine,
        key: &KeyHash,
        decision: &Decision,
    ) -> Result<Resolution> {
        let (reason, began) = (self.reason.text()?, Instant::now());
        let wait = self.wait.map_or(Duration::ZERO, |it| it.0);
        loop {
            let Some(Sighting { record, .. }) = engine.store().get(key).await? else {
                return Ok(Resolution::Missing);
            };
            if let (Decision::Complete(_), None) = (decision, &config.options.seal) {
                refuse_unsealed(&record)?;
            }
            let request = ResolveRequest {
                key: *key,
                seen_nonce: record.nonce,
                seen_token: record.token,
                decision: decision.clone(),
            };
            let answer = engine.resolve(&request, reason).await.with_context(|| {
                format!("the decision may have been carried out; see `semel keys get {key}`")
            })?;
            let left = wait.saturating_sub(began.elapsed());
            match answer {
                Resolution::Refused(Current::InProgress { remaining })
                    if !remaining.is_zero() && !left.is_zero() =>
                {
                    tokio::time::sleep(remaining.min(left) + PAUSE).await;
                }
                answer => return Ok(answer),
            }
        }
    }

    /// The decision in a word, and what follows from it.
    const fn done(&self) -> (&'static str, &'static str) {
        match (&self.complete, self.fail) {
            (Some(_), _) => ("completed", "its requests get this answer"),
            (None, true) => ("failed", "its requests get this answer"),
            (None, false) => ("open", "its next request runs"),
        }
    }
}

/// Gateways with seal keys would refuse to answer with what is not sealed.
fn refuse_unsealed(record: &Record) -> Result<()> {
    match show::sealed_with(record) {
        Some(keys) => bail!(Usage(format!(
            "key {} is sealed with {keys}, and its outcome has to be, too; give the seal keys (--seal-keys FILE)",
            record.key
        ))),
        None => Ok(()),
    }
}

/// How a key stands that cannot be decided about, or no longer.
fn standing(current: &Current) -> String {
    match current {
        Current::Open => "is open: its next request runs".to_owned(),
        Current::InProgress { remaining } if !remaining.is_zero() => {
            let left = show::length(*remaining);
            format!(
                "is in progress: its owner has {left} to renew its lease; if it is lost, add --wait 2m, which waits \
                 for the lease to end"
            )
        }
        Current::InProgress { .. } => "has moved on: another owner was lost; look again".to_owned(),
        Current::Completed(_) => {
            "has moved on: it is completed, and retries get its outcome".to_owned()
        }
        Current::Unknown => "has moved on: it is unknown by another run; look again".to_owned(),
        Current::Dead => "has moved on: it is dead by another run; look again".to_owned(),
        Current::Erased => "is erased: its requests get 410".to_owned(),
    }
}
