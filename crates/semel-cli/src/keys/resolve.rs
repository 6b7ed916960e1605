//! `semel keys resolve`: an operator decides what becomes of a key that waits for it.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use semel::{
    Current, Decision, Effect, Engine, KeyHash, ListQuery, Record, Resolution, ResolveRequest,
    Sighting, Store,
};
use semel_service::settings::{DurationValue, StoreConfig};
use serde_json::json;

use super::{change_args::ChangeArgs, outcome_args::OutcomeArgs};
use crate::{
    show,
    store_command::{UsageError, open_store},
};

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("decision").required(true))]
pub(crate) struct ResolveCommand {
    /// The operation took effect: record this response. FILE is its body, - for stdin
    #[arg(long, value_name = "FILE", group = "decision")]
    complete: Option<PathBuf>,
    /// The operation did not take effect and must not be tried again: record a final failure
    #[arg(long, group = "decision")]
    fail: bool,
    /// The operation may run again: the next request with the same payload runs it, with the same downstream key
    #[arg(long, group = "decision")]
    rerun: bool,
    /// With --rerun: the operation certainly did not take effect, so a request with another payload may run, too
    #[arg(long, conflicts_with_all = ["complete", "fail"])]
    no_effect: bool,
    #[command(flatten)]
    outcome: OutcomeArgs,
    /// Resolve only the run with this token, as `semel keys get` shows it [default: the run that the command finds]
    #[arg(long, value_name = "TOKEN")]
    token: Option<u64>,
    /// Wait up to this time for the lease of a lost owner to end; a run that begins meanwhile is not resolved
    #[arg(long, value_name = "TIME")]
    wait: Option<DurationValue>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Added to a wait for the end of a lease, so that the lease is over after it.
const PAUSE: Duration = Duration::from_millis(50);

impl ResolveCommand {
    pub(super) async fn run(&self, config: StoreConfig) -> Result<ExitCode> {
        let reason = self.change.reason()?;
        let engine = open_store(&config).await?;
        // Before the key is searched: a mistake in the response is one for every key.
        let decision = self.decision(engine.store().info().max_outcome_bytes)?;
        let key = self.change.key.find(&config, &engine).await?;
        let seals = config.options.seal.is_some();
        match self.decide(&engine, &key, &decision, seals).await? {
            Resolution::Done => {}
            Resolution::Missing => bail!("there is no record of key {key}; nothing was changed"),
            Resolution::Refused(current) => {
                bail!("key {key} {}; nothing was changed", why_refused(&current));
            }
        }
        let (word, then) = self.done();
        let (hash, reason) = (key.to_hex(), show::plain(reason));
        Ok(crate::print(&match self.change.json {
            true => show::line(&json!({"key": hash, "resolved": word, "reason": reason})),
            false => format!("resolved: {hash}, {word} ({reason}); {then}\n"),
        }))
    }

    fn decision(&self, most: usize) -> Result<Decision> {
        Ok(match &self.complete {
            Some(file) => Decision::Complete(Arc::new(self.outcome.success(file, most)?)),
            None if self.fail => Decision::Complete(Arc::new(self.outcome.failure(most)?)),
            None if self.no_effect => Decision::Reopen(Effect::None),
            None => Decision::Reopen(Effect::Possible),
        })
    }

    /// Resolves the run that it finds first, and no other. With --wait it waits for the lease to end. The store decides
    /// when that is; NATS does so only for a process that has read the record before.
    async fn decide(
        &self,
        engine: &Engine,
        key: &KeyHash,
        decision: &Decision,
        seals: bool,
    ) -> Result<Resolution> {
        let (reason, began) = (self.change.reason()?, Instant::now());
        let wait = self.wait.map_or(Duration::ZERO, |it| it.0);
        let Some(Sighting { record: first, .. }) = engine.store().get(key).await? else {
            return Ok(Resolution::Missing);
        };
        if let Some(token) = self.token.filter(|token| *token != first.token) {
            bail!(
                "key {key} has moved on from --token {token}: its token is {}; nothing was changed; look again with \
                 `semel keys get {key}`",
                first.token
            );
        }
        if let (Decision::Complete(_), false) = (decision, seals) {
            refuse_unsealed(&first, engine.store()).await?;
        }
        let request = ResolveRequest {
            key: *key,
            seen_nonce: first.nonce,
            seen_token: first.token,
            decision: decision.clone(),
        };
        loop {
            let resolution = engine.resolve(&request, reason).await.with_context(|| {
                format!("the decision may have been carried out; see `semel keys get {key}`")
            })?;
            let left = wait.saturating_sub(began.elapsed());
            match resolution {
                Resolution::Refused(Current::InProgress { remaining })
                    if !remaining.is_zero() && !left.is_zero() =>
                {
                    tokio::time::sleep(remaining.min(left) + PAUSE).await;
                }
                resolution => return Ok(resolution),
            }
            let Some(Sighting { record, .. }) = engine.store().get(key).await? else {
                return Ok(Resolution::Missing);
            };
            if (record.nonce, record.token) != (first.nonce, first.token) {
                bail!(
                    "key {key} has moved on while its lease was waited for: it is {}, and its token is {}, not {}; \
                     nothing was changed; look again with `semel keys get {key}`",
                    show::state(record.state),
                    record.token,
                    first.token
                );
            }
        }
    }

    /// The decision in a word, and its consequence.
    const fn done(&self) -> (&'static str, &'static str) {
        match (&self.complete, self.fail) {
            (Some(_), _) => ("completed", "its requests get this response"),
            (None, true) => ("failed", "its requests get this response"),
            (None, false) => ("open", "its next request runs"),
        }
    }
}

/// Gateways with seal keys refuse an unsealed outcome. A record without labels and outcome does not show whether the
/// gateways have seal keys; other records of the store do.
async fn refuse_unsealed(record: &Record, store: &dyn Store) -> Result<()> {
    const OTHERS: usize = 20;
    let (key, fix) = (record.key, "give the seal keys (--seal-keys FILE)");
    if let Some(keys) = show::sealed_with(record) {
        bail!(UsageError(format!(
            "key {key} is sealed with {keys}, and its outcome has to be sealed, too; {fix}"
        )));
    }
    if record.labels.is_some() || record.outcome.is_some() {
        return Ok(());
    }
    let others = store.list(&ListQuery { limit: OTHERS, ..ListQuery::default() }).await?;
    match others.iter().find_map(show::sealed_with) {
        Some(keys) => bail!(UsageError(format!(
            "other records here are sealed with {keys}, and the outcome of key {key} has to be sealed, too; {fix}"
        ))),
        None => Ok(()),
    }
}

/// Why a key cannot be resolved, or no longer can.
fn why_refused(current: &Current) -> String {
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
        Current::Unknown => "has moved on: another run left it unknown; look again".to_owned(),
        Current::Dead => "has moved on: another run left it dead; look again".to_owned(),
        Current::Erased => "is erased: its requests get 410".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use semel::{
        Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyRing, ManualClock, MemoryStore,
        Nonce, Outcome, Policy, SealKey, SealKeys, Sealed,
    };

    use super::*;

    #[derive(Parser)]
    struct ResolveTest {
        #[command(flatten)]
        resolve: ResolveCommand,
    }

    fn resolve(words: &str) -> ResolveCommand {
        let words = format!("resolve 00000000 --reason x {words}");
        ResolveTest::parse_from(words.split(' ')).resolve
    }

    fn claim(key: u8) -> ClaimRequest {
        ClaimRequest {
            key: KeyHash::from_bytes([key; 32]),
            fingerprint: Fingerprint::of_bytes(b"x"),
            nonce: Nonce::random(),
            terms: Policy::api().terms(),
            labels: None,
        }
    }

    fn opened() -> (ManualClock, Engine) {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        (clock, Engine::builder().store(store).build().unwrap())
    }

    /// The operator has looked at the first run only; the second may have taken effect.
    #[tokio::test(start_paused = true)]
    async fn a_run_that_begins_during_the_wait_is_not_resolved() {
        let (clock, engine) = opened();
        let request = claim(1);
        let lease = request.terms.lease.to_duration() + Duration::from_secs(1);
        engine.store().claim(&request).await.unwrap();
        let (resolve, decision) = (resolve("--rerun --wait 10m"), Decision::Reopen(Effect::None));
        let deciding = resolve.decide(&engine, &request.key, &decision, false);
        let meanwhile = async {
            // The command has found the first run, and waits for its lease.
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(lease);
            let contested = engine.store().claim(&claim(1)).await.unwrap();
            let Claim::Busy { remaining } = contested else { panic!("{contested:?}") };
            clock.advance(remaining);
            let second = engine.store().claim(&claim(1)).await.unwrap();
            assert!(matches!(second, Claim::Granted(_)), "{second:?}");
            clock.advance(lease);
        };
        let (decided, ()) = tokio::join!(deciding, meanwhile);
        let error = decided.unwrap_err().to_string();
        assert!(error.contains("has moved on") && error.contains("token is 2"), "{error}");
        let sighting = engine.store().get(&request.key).await.unwrap().unwrap();
        assert_eq!(sighting.record.token, 2, "nothing was changed");
        assert_eq!(sighting.record.state, semel::State::InProgress);
    }

    #[tokio::test]
    async fn a_record_without_labels_is_not_answered_in_the_clear_among_sealed_ones() {
        let store = MemoryStore::new();
        let held = claim(1);
        store.claim(&held).await.unwrap();
        let read = async || store.get(&held.key).await.unwrap().unwrap().record;
        refuse_unsealed(&read().await, &store).await.unwrap();
        let keys = SealKeys::parse(&SealKey::random("a").unwrap().line()).unwrap();
        let sealed = Sealed::new(store.clone(), KeyRing::new(keys));
        let Ok(Claim::Granted(lease)) = sealed.claim(&claim(2)).await else {
            panic!("it is taken")
        };
        let outcome = Arc::new(Outcome::success("paid"));
        sealed.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
        let error = refuse_unsealed(&read().await, &store).await.unwrap_err();
        assert!(
            error.is::<UsageError>() && error.to_string().contains("--seal-keys FILE"),
            "{error}"
        );
    }
}
