//! Settings: flags and `SEMEL_*` variables over semel.toml over defaults.
//!
//! ```text
//! semel.toml ─ file ─┐
//! SEMEL_*   ─ clap ─┼─ raw::Settings + Origins ─ build ─ Config
//! --flags   ─ clap ─┘
//! ```
//! Raw settings are what was written; [`GatewayConfig`] is what it means. Nothing is guessed and nothing is
//! ignored: what is wrong is a [`BadSettings`] that names the place and the fix.

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
    value::{AdminToken, CountValue, DurationValue, KeptHeader, LogFormat, LogLevel},
};

/// The variable that holds a secret itself; it has no flag, because others on a machine see flags.
const HASH_SECRET: &str = "SEMEL_HASH_SECRET";
/// The same for the keys that outcomes are sealed with.
const SEAL_KEYS: &str = "SEMEL_SEAL_KEYS";
/// The file that is read when none is named.
const FILE: &str = "semel.toml";

/// The flags of every command that needs the gateway's settings.
#[derive(Args, Debug)]
pub struct GatewayFlags {
    #[command(flatten)]
    settings: RawSettings,
    /// File with settings; flags and SEMEL_* go before it [default: semel.toml if it is there]
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE", help_heading = "Operation")]
    config: Option<PathBuf>,
    /// Show it with a built-in upstream, for everybody, on a temporary store. Takes no settings of what is
    /// connected but --listen, and no routes; reads no semel.toml unless --config names it
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

/// The flags of every command that opens a store and is no gateway.
#[derive(Args, Debug)]
// What only a process that stays needs.
#[command(mut_arg("cache", |it| it.hide(true)), mut_arg("migrate", |it| it.hide(true)))]
pub struct StoreFlags {
    #[command(flatten)]
    settings: StoreFields,
    /// File with settings, of which the store's count [default: semel.toml if it is there]
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
    let context = secrets_around(&mut read.origins)?;
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

/// What was written, and where.
struct LoadedSettings {
    read: ParsedFile,
    context: CommandContext,
    /// The file that was read.
    file: Option<PathBuf>,
}

impl LoadedSettings {
    fn config(&self) -> Result<GatewayConfig, BadSettings> {
        let ParsedFile { settings, origins, problems } = &self.read;
        ConfigBuilder::new(settings, origins, problems.clone(), self.context.clone()).build()
    }
}

fn read_all(matches: &ArgMatches) -> Result<LoadedSettings, BadSettings> {
    let command = GatewayFlags::command();
    let demo = matches.get_flag("demo");
    let (file, mut read) = match matches.get_one::<PathBuf>("config") {
        // What is here is about another service than the demo's.
        None if demo => (None, ParsedFile::default()),
        named => from_file(named)?,
    };
    // Sets what is given and leaves the rest as it was in the file.
    let updated = read.settings.update_from_arg_matches(matches);
    updated.expect("clap has checked every argument");
    read.origins.overlay(&command, matches);
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let warnings = variables::unknown(&command, names);
    let context = CommandContext { demo, warnings, ..secrets_around(&mut read.origins)? };
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

/// Secrets in their variables; notes where each is from.
fn secrets_around(origins: &mut SettingOrigins) -> Result<CommandContext, BadSettings> {
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
