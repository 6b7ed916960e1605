//! Settings: flags and `SEMEL_*` variables over semel.toml over defaults.
//!
//! ```text
//! semel.toml ─ file ─┐
//! SEMEL_*   ─ clap ─┼─ raw::Settings + Origins ─ build ─ Config
//! --flags   ─ clap ─┘
//! ```
//! Raw settings are what was written; [`Config`] is what it means. Nothing is guessed and nothing is
//! ignored: what is wrong is a [`BadSettings`] that names the place and the fix.

mod build;
mod check;
mod config;
mod file;
pub mod jwt;
mod known;
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
    build::{Around, Builder},
    file::Read,
    origin::{Origin, Origins},
    problem::Problem,
    raw::Settings,
    store::StoreFields,
};
pub use self::{
    check::summary,
    config::{Admin, ClientLimits, Config, JwtSettings, Log, Route, Timeouts, Upstream, Who},
    path::canonical_path,
    problem::BadSettings,
    store::StoreConfig,
    value::{Count, KeptHeader, LogFormat, LogLevel, Time, Token},
};

/// The variable that holds a secret itself; it has no flag, because others on a machine see flags.
const HASH_SECRET: &str = "SEMEL_HASH_SECRET";
/// The same for the keys that outcomes are sealed with.
const SEAL_KEYS: &str = "SEMEL_SEAL_KEYS";
/// The file that is read when none is named.
const FILE: &str = "semel.toml";

/// The flags of every command that needs the gateway's settings.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    settings: Settings,
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

impl Flags {
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
    let around = secrets_around(&mut read.origins)?;
    Builder::new(&read.settings, &read.origins, read.problems.clone(), around).build_store()
}

/// Reads the settings of a command that has [`Flags`].
///
/// # Errors
///
/// Everything that is wrong with them.
pub fn load(matches: &ArgMatches) -> Result<Config, BadSettings> {
    gather(matches)?.config()
}

/// What was written, and where.
struct Gathered {
    read: Read,
    around: Around,
    /// The file that was read.
    file: Option<PathBuf>,
}

impl Gathered {
    fn config(&self) -> Result<Config, BadSettings> {
        let Read { settings, origins, problems } = &self.read;
        Builder::new(settings, origins, problems.clone(), self.around.clone()).build()
    }
}

fn gather(matches: &ArgMatches) -> Result<Gathered, BadSettings> {
    let command = Flags::command();
    let demo = matches.get_flag("demo");
    let (file, mut read) = match matches.get_one::<PathBuf>("config") {
        // What is here is about another service than the demo's.
        None if demo => (None, Read::default()),
        named => from_file(named)?,
    };
    // Sets what is given and leaves the rest as it was in the file.
    let updated = read.settings.update_from_arg_matches(matches);
    updated.expect("clap has checked every argument");
    read.origins.overlay(&command, matches);
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let warnings = variables::unknown(&command, names);
    let around = Around { demo, warnings, ..secrets_around(&mut read.origins)? };
    Ok(Gathered { read, around, file })
}

fn from_file(named: Option<&PathBuf>) -> Result<(Option<PathBuf>, Read), BadSettings> {
    let path = named.map_or(Path::new(FILE), PathBuf::as_path);
    match fs::read_to_string(path) {
        Ok(text) => Ok((Some(path.to_owned()), file::read(path, &text)?)),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {
            Ok((None, Read::default()))
        }
        Err(error) => {
            if path.is_dir() {
                let file = path.join(FILE);
                let what = format!(
                    "--config: {} is a folder; name the file in it, such as {}",
                    path.display(),
                    file.display()
                );
                return Err(BadSettings(vec![Problem::new(Origin::Default, what)]));
            }
            let fix = "create it, or leave --config and SEMEL_CONFIG out";
            let what = secrets::unreadable(path, &error, fix);
            Err(BadSettings(vec![Problem::new(Origin::Default, what)]))
        }
    }
}

/// Secrets in their variables; notes where each is from.
fn secrets_around(origins: &mut Origins) -> Result<Around, BadSettings> {
    let mut secret = |variable: &str, name: &str, file: &str, fix: &str| {
        let secret = secret_in(variable, fix)?;
        let from = match &secret {
            Some(_) => Origin::Variable(variable.to_owned()),
            None => origins.of(file),
        };
        origins.insert(name.to_owned(), from);
        Ok(secret)
    };
    let hash_secret = secret(HASH_SECRET, "hash_secret", "hash_secret_file", "64 hex digits")?;
    let seal_keys = secret(SEAL_KEYS, "seal", "seal_keys", "`semel seal-key` prints")?;
    Ok(Around { hash_secret, seal_keys, ..Around::default() })
}

fn secret_in(variable: &str, such_as: &str) -> Result<Option<value::Secret>, BadSettings> {
    match env::var(variable) {
        Ok(secret) => Ok(Some(value::Secret(secret))),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            let at = Origin::Variable(variable.to_owned());
            let what = format!("is not text (UTF-8); write it as text, such as {such_as}");
            Err(BadSettings(vec![Problem::new(at, what)]))
        }
    }
}
