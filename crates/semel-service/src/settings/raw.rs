//! Raw settings: what was written, before it is checked.
//!
//! One struct serves flags, variables and semel.toml, so that they cannot differ. Every field may be left out; clap
//! skips fields that only semel.toml has. The id of an argument is the path of its field in semel.toml.

use std::{collections::BTreeMap, path::PathBuf};

use clap::{Args, builder::BoolishValueParser};
use serde::Deserialize;

use super::{
    policy::PolicyFields,
    store::StoreFields,
    value::{
        CountValue, DurationValue, ListenAddress, LogFormat, LogLevel, PrincipalSetting,
        RouteMatch, Secret, SizeValue,
    },
    worker::WorkerFields,
};

/// Everything that can be set.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RawSettings {
    #[command(flatten)]
    pub(super) gateway: GatewayFields,
    #[command(flatten)]
    pub(super) store: StoreFields,
    #[command(flatten)]
    pub(super) policy: PolicyFields,
    #[command(flatten)]
    pub(super) admin: AdminFields,
    #[command(flatten)]
    pub(super) log: LogFields,
    #[arg(skip)]
    pub(super) timeouts: TimeoutFields,
    #[arg(skip)]
    pub(super) client: ClientFields,
    #[arg(skip)]
    pub(super) jwt: JwtFields,
    #[arg(skip)]
    pub(super) upstreams: BTreeMap<String, UpstreamFields>,
    #[arg(skip)]
    pub(super) routes: Vec<RouteFields>,
    /// `semel worker` has flags for these.
    #[arg(skip)]
    pub(super) worker: WorkerFields,
}

/// The gateway's address, its default upstream, and how it finds the caller.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Gateway")]
pub(crate) struct GatewayFields {
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, env = "SEMEL_LISTEN", value_name = "ADDR")]
    pub(super) listen: Option<ListenAddress>,
    /// Service behind the gateway: http://HOST:PORT[/BASE]
    #[arg(long, env = "SEMEL_UPSTREAM", value_name = "URL", hide_env_values = true)]
    pub(super) upstream: Option<Secret>,
    /// How the caller of a request is found: anonymous | authorization | header:NAME | jwt:FILE | jwt-secret:FILE
    #[arg(long, env = "SEMEL_PRINCIPAL", value_name = "PRINCIPAL", long_help = PRINCIPAL)]
    pub(super) principal: Option<PrincipalSetting>,
    /// Whether a key that was used with one Host header is refused with another [default: true]
    #[arg(long, env = "SEMEL_COMPARE_HOST", value_name = "BOOL")]
    pub(super) compare_host: Option<bool>,
    #[arg(skip)]
    pub(super) trust_forwarded: Option<bool>,
    #[arg(skip)]
    pub(super) shutdown_grace: Option<DurationValue>,
    #[arg(skip)]
    pub(super) buffer: Option<SizeValue>,
}

const PRINCIPAL: &str = "\
How the caller of a request is found. The caller is part of every key, so that no caller gets another's outcome.

  authorization  the Authorization header as a whole, kept as a hash;
                 for API keys and long-lived tokens
  jwt:FILE       issuer and subject of a verified JWT; FILE has public keys, as JWKS or PEM;
                 for tokens that are renewed: the user stays the same
  jwt-secret:FILE
                 the same for tokens that are signed with a shared secret (HS256)
  header:NAME    a header that a proxy in front sets;
                 the proxy must strip it from what clients send
  anonymous      all callers share one key space;
                 for internal callers that trust each other

Examples:
  --principal authorization
  --principal header:X-User
  --principal jwt:keys.json
";

/// The admin listener.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Operation")]
pub(crate) struct AdminFields {
    /// Address of /metrics, /healthz and /readyz; without it there are none
    #[arg(long = "admin", id = "admin.listen", env = "SEMEL_ADMIN", value_name = "ADDR")]
    pub(super) listen: Option<ListenAddress>,
    /// Bearer token for /metrics; required unless --admin is on loopback. Better set SEMEL_ADMIN_TOKEN: other users
    /// of the machine see flags
    #[arg(
        long = "admin-token",
        id = "admin.token",
        env = "SEMEL_ADMIN_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub(super) token: Option<Secret>,
    #[arg(skip)]
    pub(super) token_file: Option<PathBuf>,
    /// Answer /readyz with 503 while an upstream cannot be reached
    #[arg(
        long = "ready-needs-upstreams",
        id = "admin.ready_needs_upstreams",
        env = "SEMEL_READY_NEEDS_UPSTREAMS",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    pub(super) ready_needs_upstreams: Option<bool>,
}

/// What is logged, to stderr.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Operation")]
pub(crate) struct LogFields {
    /// How much is logged [default: info]
    #[arg(long = "log", id = "log.level", env = "SEMEL_LOG", value_name = "LEVEL")]
    pub(super) level: Option<LogLevel>,
    /// How a line of the log is written [default: text]
    #[arg(long = "log-format", id = "log.format", env = "SEMEL_LOG_FORMAT", value_name = "FORMAT")]
    pub(super) format: Option<LogFormat>,
}

/// Limits of time for upstreams.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimeoutFields {
    pub(super) connect: Option<DurationValue>,
    pub(super) header: Option<DurationValue>,
    pub(super) body: Option<DurationValue>,
    pub(super) idle: Option<DurationValue>,
}

/// Limits for clients.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientFields {
    pub(super) header: Option<DurationValue>,
    pub(super) body: Option<DurationValue>,
    pub(super) idle: Option<DurationValue>,
    pub(super) connections: Option<CountValue>,
}

/// What a JWT must claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JwtFields {
    pub(super) issuers: Option<Vec<String>>,
    pub(super) audiences: Option<Vec<String>>,
    pub(super) leeway: Option<DurationValue>,
}

/// A named upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamFields {
    pub(super) url: Option<Secret>,
    pub(super) preserve_host: Option<bool>,
}

/// Where requests of one kind go, and how they are protected.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteFields {
    pub(super) target: RouteTarget,
    pub(super) policy: PolicyFields,
}

/// The match and the upstream of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTarget {
    #[serde(rename = "match")]
    pub(super) matching: Option<RouteMatch>,
    pub(super) upstream: Option<String>,
}
