//! What all operator commands share: they load the store's settings, open the store, and report errors.

use std::{fmt, process::ExitCode};

use anyhow::{Result, bail};
use clap::ArgMatches;
use semel::{Engine, StoreOptions};
use semel_service::{
    settings::{self, StoreConfig},
    store, telemetry,
};

/// A mistake in the command as it is written. The exit code is 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Runs `work` with the settings of the store, and turns its error into a message and an exit code.
pub(crate) async fn run_with_store(
    matches: &ArgMatches,
    work: impl AsyncFnOnce(StoreConfig) -> Result<ExitCode>,
) -> ExitCode {
    let config = match settings::load_store(matches) {
        Ok(config) => config,
        Err(bad) => return crate::refuse(&bad),
    };
    let _logs = telemetry::warnings();
    exit_code(work(config).await)
}

/// Turns the error of a command into a message and an exit code.
pub(crate) fn exit_code(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        crate::complain(format_args!("error: {error:#}"));
        if error.is::<UsageError>() { ExitCode::from(crate::USAGE) } else { ExitCode::FAILURE }
    })
}

/// Opens an existing store, without a cache. Creates nothing.
pub(crate) async fn open_store(config: &StoreConfig) -> Result<Engine> {
    refuse_absent(config)?;
    let options = config.options.clone();
    let options = StoreOptions { cache: None, migrate: false, skip_setup: true, ..options };
    store::open(&config.url, &options).await
}

/// Refuses a store that does not exist: opening it would create an empty one, and the command would find no fault.
pub(crate) fn refuse_absent(config: &StoreConfig) -> Result<()> {
    if config.url.is_volatile() {
        bail!(UsageError(format!(
            "{} is forgotten with its process, so there is nothing to read; name another store with \
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
