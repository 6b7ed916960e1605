//! The settings of `semel worker`, `semel dead-letters` and `semel doctor`. The sections of store, admin listener and log are those of
//! the gateway; the worker's own settings are in the section `[worker]`.

mod build;
mod check;
mod config;
mod fields;
mod folders;
mod limits;

use clap::{ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

pub use self::{
    config::{DeadLetterTarget, DeadLettersConfig, DoctorConfig, EventsConfig, WorkerConfig},
    fields::{DeadLetterFlags, DoctorFlags, WorkerFlags},
};
pub(super) use check::{has_gateway, worker_beside};
pub(super) use fields::WorkerFields;

use super::{
    BadSettings, ConfigBuilder, LoadedSettings, ParsedFile, SettingOrigin, read_with,
    secrets_in_variables,
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
        update_worker(&mut settings.worker, matches)?;
        settings.store.update_from_arg_matches(matches)?;
        settings.admin.update_from_arg_matches(matches)?;
        settings.log.update_from_arg_matches(matches)
    })?;
    let LoadedSettings { read: ParsedFile { settings, mut origins, problems }, context, .. } =
        loaded;
    if is_blank_variable(matches, "worker.types") && settings.worker.types.is_none() {
        origins.insert("worker.types".to_owned(), SettingOrigin::Default);
    }
    ConfigBuilder::new(&settings, &origins, problems, context).build_worker()
}

/// Sets the fields that flags and variables give.
fn update_worker(worker: &mut WorkerFields, matches: &ArgMatches) -> Result<(), clap::Error> {
    let types = worker.types.clone();
    worker.update_from_arg_matches(matches)?;
    if is_blank_variable(matches, "worker.types") {
        worker.types = types;
    }
    Ok(())
}

/// True for a list whose variable is there and empty, as a script or a chart leaves it: it counts as not set.
fn is_blank_variable(matches: &ArgMatches, id: &str) -> bool {
    let mut texts = matches.get_many::<String>(id).into_iter().flatten();
    matches.value_source(id) == Some(ValueSource::EnvVariable)
        && texts.next().is_some_and(|text| text.trim().is_empty())
        && texts.next().is_none()
}

/// Reads the settings of a command that has [`DeadLetterFlags`].
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn load_dead_letters(matches: &ArgMatches) -> Result<DeadLettersConfig, BadSettings> {
    let command = DeadLetterFlags::augment_args(Command::new("semel"));
    read_operator(matches, &command, |worker| {
        let mut flags = fields::DeadLetterFields::default();
        flags.update_from_arg_matches(matches)?;
        flags.set(worker);
        Ok(())
    })?
    .builder()
    .build_dead_letters()
}

/// Reads the settings of a command that has [`DoctorFlags`].
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn load_doctor(matches: &ArgMatches) -> Result<DoctorConfig, BadSettings> {
    let command = DoctorFlags::augment_args(Command::new("semel"));
    read_operator(matches, &command, |worker| {
        let mut flags = fields::DoctorFields::default();
        flags.update_from_arg_matches(matches)?;
        flags.set(worker);
        Ok(())
    })?
    .builder()
    .build_doctor()
}

/// Reads the settings of an operator command; `update` sets the fields of the worker that its flags and variables give.
fn read_operator(
    matches: &ArgMatches,
    command: &Command,
    update: impl FnOnce(&mut WorkerFields) -> Result<(), clap::Error>,
) -> Result<LoadedSettings, BadSettings> {
    let (file, mut read) = super::from_file(matches.get_one("config"))?;
    let updated = read.settings.store.update_from_arg_matches(matches);
    let updated = updated.and_then(|()| update(&mut read.settings.worker));
    updated.expect("clap has checked every argument");
    read.origins.overlay(command, matches);
    let context = secrets_in_variables(&mut read.origins)?;
    Ok(LoadedSettings { read, context, file })
}
