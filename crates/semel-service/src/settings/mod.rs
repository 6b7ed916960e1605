//! The settings of a command, from flags, `SEMEL_*` variables, semel.toml and defaults, in this order of precedence.
//!
//! ```text
//! semel.toml ─ file ─┐
//! SEMEL_*   ─ clap ─┼─ RawSettings + SettingOrigins ─ ConfigBuilder ─ GatewayConfig, WorkerConfig
//! --flags   ─ clap ─┘
//! ```
//! Raw settings are what was written, [`GatewayConfig`] and [`WorkerConfig`] are what it means. No value is guessed and
//! none is ignored: a mistake is reported in [`BadSettings`] with its place and the fix.
//!
//! The settings of the gateway and of the worker are here, not in their crates: one struct serves flags, variables and
//! file, and the operator commands read the same file as a whole.

mod build;
mod config;
mod field_names;
mod file;
pub mod jwt;
mod listeners;
mod origin;
mod path;
mod policy;
mod problem;
mod raw;
mod routes;
mod seal;
pub mod secrets;
mod store;
mod summary;
mod value;
mod variables;
mod worker;

#[cfg(test)]
mod tests;

use std::{
    env::{self, VarError},
    fs, io,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args, Command, FromArgMatches, builder::BoolishValueParser};

use self::{
    build::{CommandContext, ConfigBuilder},
    file::ParsedFile,
    origin::{SettingOrigin, SettingOrigins},
    problem::SettingProblem,
    raw::RawSettings,
    store::StoreFields,
};
pub use self::{
    config::{
        AdminSettings, ClientLimits, GatewayConfig, JwtSettings, LogSettings, PrincipalSource,
        RouteConfig, UpstreamConfig, UpstreamTimeouts,
    },
    path::canonical_path,
    problem::BadSettings,
    store::StoreConfig,
    summary::summary,
    value::{AdminToken, CountValue, DurationValue, HandlerUrl, KeptHeader, LogFormat, LogLevel},
    worker::{
        DeadLetterFlags, DeadLetterTarget, DeadLettersConfig, DoctorConfig, DoctorFlags,
        EventsConfig, WorkerConfig, WorkerFlags, load_dead_letters, load_doctor, load_worker,
    },
};

/// The variable that holds the hash secret itself. There is no flag for it: other users of the machine see flags.
const HASH_SECRET: &str = "SEMEL_HASH_SECRET";
/// The variable that holds the seal keys themselves.
const SEAL_KEYS: &str = "SEMEL_SEAL_KEYS";
/// The file that is read when none is named.
const FILE: &str = "semel.toml";

/// The flags of every command that needs the gateway's settings.
#[derive(Args, Debug)]
pub struct GatewayFlags {
    #[command(flatten)]
    settings: RawSettings,
    /// File with settings; flags and SEMEL_* variables take precedence [default: semel.toml if it exists]
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE", help_heading = "Operation")]
    config: Option<PathBuf>,
    /// Run a demonstration with a built-in upstream, a temporary store and anonymous callers. Does not go with
    /// --upstream, --principal, --store, --mode, --mismatch-status or routes; reads semel.toml only if --config
    /// names it
    #[arg(
        long,
        env = "SEMEL_DEMO",
        help_heading = "Operation",
        value_parser = BoolishValueParser::new()
    )]
    demo: bool,
}

impl GatewayFlags {
    fn command() -> Command {
        Self::augment_args(Command::new("semel"))
    }
}

/// The flags of every operator command that opens a store.
#[derive(Args, Debug)]
// Only a long-running process needs these.
#[command(mut_arg("cache", |it| it.hide(true)), mut_arg("migrate", |it| it.hide(true)))]
pub struct StoreFlags {
    #[command(flatten)]
    settings: StoreFields,
    /// File with settings; only those of the store are used [default: semel.toml if it exists]
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE", help_heading = "Store")]
    config: Option<PathBuf>,
}

/// Reads the settings of a command that has [`StoreFlags`].
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn load_store(matches: &ArgMatches) -> Result<StoreConfig, BadSettings> {
    let (_, mut read) = from_file(matches.get_one::<PathBuf>("config"))?;
    let updated = read.settings.store.update_from_arg_matches(matches);
    updated.expect("clap has checked every argument");
    read.origins.overlay(&StoreFlags::augment_args(Command::new("semel")), matches);
    let context = secrets_in_variables(&mut read.origins)?;
    ConfigBuilder::new(&read.settings, &read.origins, read.problems.clone(), context).build_store()
}

/// Reads the settings of a command that has [`GatewayFlags`].
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn load(matches: &ArgMatches) -> Result<GatewayConfig, BadSettings> {
    read_all(matches)?.config()
}

/// The settings as they were written, and where.
struct LoadedSettings {
    read: ParsedFile,
    context: CommandContext,
    /// The file that was read.
    file: Option<PathBuf>,
}

impl LoadedSettings {
    fn config(&self) -> Result<GatewayConfig, BadSettings> {
        self.builder().build()
    }

    fn builder(&self) -> ConfigBuilder<'_> {
        let ParsedFile { settings, origins, problems } = &self.read;
        ConfigBuilder::new(settings, origins, problems.clone(), self.context.clone())
    }
}

fn read_all(matches: &ArgMatches) -> Result<LoadedSettings, BadSettings> {
    read_with(matches, &GatewayFlags::command(), RawSettings::update_from_arg_matches)
}

/// Reads the settings of a long-running command; `update` sets the fields that its flags and variables give.
fn read_with(
    matches: &ArgMatches,
    command: &Command,
    update: impl FnOnce(&mut RawSettings, &ArgMatches) -> Result<(), clap::Error>,
) -> Result<LoadedSettings, BadSettings> {
    let demo = matches.get_flag("demo");
    let (file, mut read) = match matches.get_one::<PathBuf>("config") {
        // A semel.toml in this folder is for another service than the demo's.
        None if demo => (None, ParsedFile::default()),
        named => from_file(named)?,
    };
    // Sets the fields that flags and variables give, and leaves the others as the file has them.
    update(&mut read.settings, matches).expect("clap has checked every argument");
    read.origins.overlay(command, matches);
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let warnings = variables::unknown(command, names);
    let context = CommandContext { demo, warnings, ..secrets_in_variables(&mut read.origins)? };
    Ok(LoadedSettings { read, context, file })
}

fn from_file(named: Option<&PathBuf>) -> Result<(Option<PathBuf>, ParsedFile), BadSettings> {
    let path = named.map_or(Path::new(FILE), PathBuf::as_path);
    match fs::read_to_string(path) {
        Ok(text) => Ok((Some(path.to_owned()), file::read(path, &text)?)),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {
            Ok((None, ParsedFile::default()))
        }
        Err(error) => {
            if path.is_dir() {
                let file = path.join(FILE);
                let what = format!(
                    "--config: {} is a folder; name the file in it, such as {}",
                    path.display(),
                    file.display()
                );
                return Err(BadSettings(vec![SettingProblem::new(SettingOrigin::Default, what)]));
            }
            let fix = "create it, or leave --config and SEMEL_CONFIG out";
            let what = secrets::unreadable(path, &error, fix);
            Err(BadSettings(vec![SettingProblem::new(SettingOrigin::Default, what)]))
        }
    }
}

/// Reads the variables that hold secrets, and notes where each secret is from.
fn secrets_in_variables(origins: &mut SettingOrigins) -> Result<CommandContext, BadSettings> {
    let mut secret = |variable: &str, name: &str, file: &str, fix: &str| {
        let secret = secret_in(variable, fix)?;
        let from = match &secret {
            Some(_) => SettingOrigin::Variable(variable.to_owned()),
            None => origins.of(file),
        };
        origins.insert(name.to_owned(), from);
        Ok(secret)
    };
    let hash_secret = secret(HASH_SECRET, "hash_secret", "hash_secret_file", "64 hex digits")?;
    let seal_keys = secret(SEAL_KEYS, "seal", "seal_keys", "`semel seal-key` prints")?;
    Ok(CommandContext { hash_secret, seal_keys, ..CommandContext::default() })
}

fn secret_in(variable: &str, such_as: &str) -> Result<Option<value::Secret>, BadSettings> {
    match env::var(variable) {
        Ok(secret) => Ok(Some(value::Secret(secret))),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            let at = SettingOrigin::Variable(variable.to_owned());
            let what = format!("is not text (UTF-8); write it as text, such as {such_as}");
            Err(BadSettings(vec![SettingProblem::new(at, what)]))
        }
    }
}
