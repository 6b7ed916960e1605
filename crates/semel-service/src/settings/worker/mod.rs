//! The settings of `semel worker` and `semel dead-letters`. The sections of store, admin listener and log are those of
//! the gateway; the worker's own settings are in the section `[worker]`.

mod build;
mod config;
mod fields;

use clap::{ArgMatches, Args, Command, FromArgMatches};

pub use self::{
    config::{DeadLetterTarget, DeadLettersConfig, WorkerConfig},
    fields::{DeadLetterFlags, WorkerFlags},
};
pub(super) use fields::WorkerFields;

use super::{
    BadSettings, ConfigBuilder, LoadedSettings, ParsedFile, read_with, secrets_in_variables,
};

impl WorkerFlags {
    fn command() -> Command {
        Self::augment_args(Command::new("semel"))
    }
}

/// Reads the settings of a command that has [`WorkerFlags`].
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn load_worker(matches: &ArgMatches) -> Result<WorkerConfig, BadSettings> {
    let loaded = read_with(matches, &WorkerFlags::command(), |settings, matches| {
        settings.worker.update_from_arg_matches(matches)?;
        settings.store.update_from_arg_matches(matches)?;
        settings.admin.update_from_arg_matches(matches)?;
        settings.log.update_from_arg_matches(matches)
    })?;
    let LoadedSettings { read: ParsedFile { settings, origins, problems }, context, .. } = loaded;
    ConfigBuilder::new(&settings, &origins, problems, context).build_worker()
}

/// Reads the settings of a command that has [`DeadLetterFlags`].
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn load_dead_letters(matches: &ArgMatches) -> Result<DeadLettersConfig, BadSettings> {
    let (_, mut read) = super::from_file(matches.get_one("config"))?;
    let updated = read.settings.store.update_from_arg_matches(matches);
    updated.expect("clap has checked every argument");
    let mut flags = fields::DeadLetterFields::default();
    flags.update_from_arg_matches(matches).expect("clap has checked every argument");
    flags.set(&mut read.settings.worker);
    read.origins.overlay(&DeadLetterFlags::augment_args(Command::new("semel")), matches);
    let context = secrets_in_variables(&mut read.origins)?;
    let ParsedFile { settings, origins, problems } = read;
    ConfigBuilder::new(&settings, &origins, problems, context).build_dead_letters()
}
