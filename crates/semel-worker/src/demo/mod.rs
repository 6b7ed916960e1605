//! `--demo`: shows what a worker does with four messages, without a broker or a handler of the user's own.

mod endpoint;
mod script;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use semel::{Redacted, StoreUrl};
use semel_consumer::memory::MemorySource;
use semel_service::{settings::WorkerConfig, signals::Signals, store, telemetry};
use tempfile::TempDir;
use tokio::time::timeout;

use self::{endpoint::DemoEndpoint, script::DemoScript};
use crate::{
    consumer, metrics,
    open::{self, OnMissing, SharedSink},
};

/// The demo takes about two seconds; a machine on which it takes so long has another problem.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the demo to its end.
pub(crate) async fn run(mut config: WorkerConfig) -> Result<()> {
    let (_, _logs) = telemetry::init(&config.log, &[metrics::BUCKETS])?;
    metrics::register();
    let mut signals = Signals::listen()?;
    let folder = tempfile::Builder::new().prefix("semel-demo-").tempdir();
    let folder = folder.context("cannot create a folder for the demo's store; set TMPDIR")?;
    config.store = Some(StoreUrl::file(folder.path().join("store")));
    tokio::select! {
        result = timeout(LIMIT, run_demo(&config, &folder)) => result.context("the demo did not end")?,
        () = signals.next() => Ok(()),
    }
}

async fn run_demo(config: &WorkerConfig, folder: &TempDir) -> Result<()> {
    let endpoint = DemoEndpoint::start().await?;
    let source = MemorySource::new();
    let engine = store::open_for_service(config.store.as_ref(), &config.store_options).await?;
    let url = Redacted::new(format!("file:{}", folder.path().join("dead-letters").display()));
    let letters = open::dead_letters(&url, OnMissing::Create).await?;
    let sink = Some(SharedSink(letters.clone()));
    let handler = format!("http://{}/events", endpoint.address);
    let handler = handler.parse().map_err(|error: String| anyhow::anyhow!(error))?;
    let consumer = consumer::build(config, source.clone(), sink, engine, &handler)?;
    consumer::check(&consumer).await?;
    let script = DemoScript { source, endpoint, letters };
    let (report, result) = tokio::join!(consumer.run(), script.run());
    result?;
    ensure!(report?.cut_off == 0, "events of the demo were cut off");
    Ok(())
}
