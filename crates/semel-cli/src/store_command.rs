//! What every command for operators begins and ends with.

use std::{fmt, process::ExitCode};

use anyhow::{Result, bail};
use clap::ArgMatches;
use semel::{Engine, StoreOptions};
use semel_service::{
    settings::{self, StoreConfig},
    store, telemetry,
};

/// A command that cannot be carried out as it is written.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Does `work` with the store that the settings name.
pub(crate) async fn run_with_store(
    matches: &ArgMatches,
    work: impl AsyncFnOnce(StoreConfig) -> Result<ExitCode>,
) -> ExitCode {
    let config = match settings::load_store(matches) {
        Ok(config) => config,
        Err(bad) => return crate::refuse(&bad),
    };
    let _logs = telemetry::warnings();
    match work(config).await {
        Ok(code) => code,
        Err(error) => {
            crate::complain(format_args!("error: {error:#}"));
            if error.is::<UsageError>() { ExitCode::from(crate::USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Opens a store that is there. Nothing is made, and nothing is kept in between.
pub(crate) async fn open_store(config: &StoreConfig) -> Result<Engine> {
    refuse_absent(config)?;
    let options = config.options.clone();
    let options = StoreOptions { cache: None, migrate: false, look_only: true, ..options };
    store::open(&config.url, &options).await
}

/// Opening would make an empty store, and the command would say that all is well.
pub(crate) fn refuse_absent(config: &StoreConfig) -> Result<()> {
    if config.url.is_forgotten() {
        bail!(UsageError(format!(
            "{} is forgotten with its process, and there is nothing to see; name another store with \
             --store",
            config.url
        )));
    }
    let Some(folder) = config.url.folder() else { return Ok(()) };
    if folder.read_dir().is_ok_and(|mut files| files.next().is_none()) || !folder.exists() {
        bail!("there is no store in {}; name its folder with --store file:PATH", folder.display());
    }
    Ok(())
}
