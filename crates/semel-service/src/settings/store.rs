//! The settings of the store, the same for every command that opens one.

use std::path::PathBuf;

use clap::{Args, builder::BoolishValueParser};
use semel::{HashSecret, Scope, StoreOptions, StoreUrl};
use serde::Deserialize;

use super::{
    build::ConfigBuilder,
    config::GatewayConfig,
    field_names::closest_name,
    origin::SettingOrigin,
    problem::{BadSettings, SettingProblem},
    raw::RawSettings,
    value::{CountValue, Secret},
};

/// Where records are kept, and how the store is opened.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreFields {
    /// Where outcomes are kept: file:PATH | memory: | postgres://… | redis://… | nats://… [default: file:semel-data]
    #[arg(
        long,
        env = "SEMEL_STORE",
        value_name = "URL",
        hide_env_values = true,
        long_help = STORE
    )]
    pub(super) store: Option<Secret>,
    /// Name of this service in the store; required if the store is shared [default: default]
    #[arg(long, env = "SEMEL_NAMESPACE", value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// File with the secret that keys are hashed with; or SEMEL_HASH_SECRET, the secret itself. All processes that
    /// share a store have the same one, or none
    #[arg(long, env = "SEMEL_HASH_SECRET_FILE", value_name = "FILE")]
    pub(super) hash_secret_file: Option<PathBuf>,
    /// Number of outcomes kept in memory, too, so that their replays need no round trip [default: none]
    #[arg(long, env = "SEMEL_CACHE", value_name = "ENTRIES")]
    pub(super) cache: Option<CountValue>,
    /// Create or update the tables of a PostgreSQL store at the start, as `semel migrate` does
    #[arg(
        long,
        env = "SEMEL_MIGRATE",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    pub(super) migrate: Option<bool>,
    /// File with the keys that seal outcomes and labels; or SEMEL_SEAL_KEYS, the keys themselves.
    /// See `semel seal-key` [default: not sealed]
    #[arg(long, env = "SEMEL_SEAL_KEYS_FILE", value_name = "FILE")]
    pub(super) seal_keys: Option<PathBuf>,
    /// Also read records that are not sealed, such as those from before there were seal keys
    #[arg(
        long,
        env = "SEMEL_ACCEPT_UNSEALED",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    pub(super) accept_unsealed: Option<bool>,
    #[arg(skip)]
    pub(super) connections: Option<CountValue>,
    /// A redis://… in front of a postgres://… store, for replays; if it fails, replays are slower
    #[arg(long, env = "SEMEL_FRONT", value_name = "URL", hide_env_values = true)]
    pub(super) front: Option<Secret>,
    /// A postgres://… that takes over while a redis://… store is unreachable; operations may run twice then
    #[arg(long, env = "SEMEL_FAILOVER", value_name = "URL", hide_env_values = true)]
    pub(super) failover: Option<Secret>,
    /// Confirms that operations may run twice with --failover
    #[arg(
        long,
        env = "SEMEL_ALLOW_DUPLICATE_EXECUTION_ON_FAILOVER",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    pub(super) allow_duplicate_execution_on_failover: Option<bool>,
}

const STORE: &str = "\
Where outcomes are kept.

  file:PATH              a folder on this machine, safe against crash and power loss;
                         one process at a time
  memory:                forgotten when the process ends; for trying things out
  postgres://USER@HOST/DATABASE[?schema=NAME&table=NAME]
                         a table that many processes share; see `semel migrate`
  redis://HOST:PORT[?prefix=NAME]
                         Redis or Valkey that many processes share; rediss:// with
                         TLS, redis+cluster://H1:P,H2:P,
                         redis+sentinel://H1:P,H2:P/SERVICE
  nats://HOST:PORT/BUCKET[?prefix=NAME&replicas=3]
                         a NATS KV bucket that many processes share; nats+tls://
                         with TLS, nats://H1:P,H2:P,H3:P/BUCKET for a cluster

Two servers as one store:
  --store postgres://… --front redis://…
                         PostgreSQL decides, Redis keeps copies for replays
  --store redis://… --failover postgres://… --allow-duplicate-execution-on-failover
                         Redis, and PostgreSQL while Redis is unreachable

Set a URL with a password in SEMEL_STORE: other users of the machine see flags.

Examples:
  --store file:/var/lib/semel
  --store postgres://app@db/app --namespace payments

[default: file:semel-data]";

/// A store that is not opened yet.
#[derive(Debug)]
pub struct StoreConfig {
    /// Where it is.
    pub url: StoreUrl,
    /// False when the settings name no store, and `url` is the default.
    pub is_named: bool,
    /// How it is opened.
    pub options: StoreOptions,
    /// `None` when the settings name none.
    pub namespace: Option<String>,
}

impl ConfigBuilder<'_> {
    /// The configuration of the store alone, for operator commands.
    pub(super) fn build_store(mut self) -> Result<StoreConfig, BadSettings> {
        let config = self.store_alone();
        BadSettings::unless_empty(self.problems, config)
    }

    /// The store of an operator command.
    pub(super) fn store_alone(&mut self) -> StoreConfig {
        let url = self.store().unwrap_or_else(default_url);
        let namespace = self.settings.store.namespace.is_some().then(|| self.namespace(None));
        let is_named = self.settings.store.store.is_some();
        let options = self.store_options(Some(&url));
        StoreConfig { url, is_named, options, namespace }
    }

    pub(super) fn store(&mut self) -> Option<StoreUrl> {
        match &self.settings.store.store {
            Some(url) => {
                let near = closest_scheme(&url.0);
                let url = url.0.parse();
                url.map_err(|what: semel::Error| self.problem("store", format!("{what}{near}")))
                    .ok()
            }
            None if self.demo() => None,
            None => Some(default_url()),
        }
    }

    pub(super) fn store_options(&mut self, store: Option<&StoreUrl>) -> StoreOptions {
        let set = self.settings;
        let count = |count: Option<CountValue>| count.map(|it| it.0.get() as usize);
        let options = StoreOptions {
            front: self.second("front", set.store.front.as_ref()),
            failover: self.second("failover", set.store.failover.as_ref()),
            allow_duplicate_execution_on_failover: set
                .store
                .allow_duplicate_execution_on_failover
                .unwrap_or_default(),
            hash_secret: self.hash_secret(),
            cache: count(set.store.cache),
            migrate: set.store.migrate.unwrap_or_default(),
            skip_setup: false,
            connections: count(set.store.connections),
            seal: self.seal(),
        };
        if let Some(Err(error)) = store.map(|store| store.check(&options)) {
            self.problem(second_server(set), error.to_string());
        }
        for (name, url) in [
            ("store", store),
            ("front", options.front.as_ref()),
            ("failover", options.failover.as_ref()),
        ] {
            if let Some(Err(error)) = url.map(|url| url.validate(&options)) {
                self.problem(name, error.to_string());
            }
        }
        options
    }

    /// Warns of `migrate` on a store without tables: the settings may name the wrong store.
    pub(super) fn migrates_tables(&mut self, store: Option<&StoreUrl>, options: &StoreOptions) {
        let Some(store) =
            store.filter(|store| options.migrate && store.with_tables(options).is_none())
        else {
            return;
        };
        let from = match self.origins.of("migrate") {
            SettingOrigin::Default => "--migrate".to_owned(),
            origin => origin.to_string(),
        };
        self.warn(&format!("{from}: {store} has no tables; it needs no migration"));
    }

    fn second(&mut self, name: &str, url: Option<&Secret>) -> Option<StoreUrl> {
        let url = url?.0.parse();
        url.map_err(|what: semel::Error| self.problem(name, what.to_string())).ok()
    }

    pub(super) fn namespace(&mut self, store: Option<&StoreUrl>) -> String {
        let Some(name) = &self.settings.store.namespace else {
            if store.is_some_and(StoreUrl::is_shared)
                && self.origins.of("namespace") == SettingOrigin::Default
            {
                self.problem("namespace", NO_NAMESPACE);
            }
            return GatewayConfig::NAMESPACE.into();
        };
        // In observe mode, the layer keeps its records in a second namespace with this suffix.
        const OBSERVED: &str = ":observed";
        let most = Scope::MAX_BYTES - OBSERVED.len();
        if name.len() > most {
            self.problem("namespace", format!("has {} bytes; use at most {most}", name.len()));
        } else if name.ends_with(OBSERVED) {
            self.problem(
                "namespace",
                format!("ends in {OBSERVED:?}, which is taken; choose another"),
            );
        } else if let Err(error) = Scope::new(name, semel::Principal::Anonymous, "any").key("any") {
            self.problem("namespace", format!("{error}; write a name, such as payments"));
        }
        name.clone()
    }

    fn hash_secret(&mut self) -> Option<HashSecret> {
        let file = self.settings.store.hash_secret_file.as_deref();
        let at = self.origins.of("hash_secret_file");
        let (secret, at) = match (self.context.hash_secret.clone(), file) {
            // With another secret, no key is found again, so semel must not choose one of the two.
            (Some(_), Some(_)) if !matches!(at, SettingOrigin::File { .. }) => {
                self.problem(
                    "hash_secret_file",
                    "is set beside SEMEL_HASH_SECRET; keep one of them",
                );
                return None;
            }
            (Some(secret), _) => (secret.0.into_bytes(), self.origins.of("hash_secret")),
            (None, Some(file)) => (self.secret_in("hash_secret_file", file)?, at),
            (None, None) => return None,
        };
        let secret = HashSecret::from_bytes(&secret);
        secret.map_err(|error| self.problems.push(SettingProblem::new(at, error.to_string()))).ok()
    }
}

/// The known scheme that is closest to an unknown one. The error shows nothing else of the URL: it may hold a password.
fn closest_scheme(url: &str) -> String {
    const SCHEMES: [&str; 6] = ["file", "memory", "postgres", "redis", "valkey", "nats"];
    let scheme = url.split(':').next().unwrap_or_default();
    match closest_name(scheme, SCHEMES) {
        Some(closest) if closest != scheme => format!(" (did you mean {closest}:?)"),
        Some(_) | None => String::new(),
    }
}

/// The setting of the second server, for problems with the pair.
const fn second_server(set: &RawSettings) -> &'static str {
    match (&set.store.front, &set.store.failover) {
        (Some(_), _) => "front",
        (None, Some(_)) => "failover",
        (None, None) => "allow_duplicate_execution_on_failover",
    }
}

/// The store without `--store`.
pub(super) fn default_url() -> StoreUrl {
    StoreUrl::file("semel-data")
}

const NO_NAMESPACE: &str = "\
no namespace: other services may use this store, and the namespace keeps their keys apart. Name this service
  --namespace payments
or set SEMEL_NAMESPACE, or namespace = \"payments\" in semel.toml";
