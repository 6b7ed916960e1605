//! The checked settings: every value is valid, every name resolved.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::{Method, uri::Authority};
use semel::{
    StoreOptions, StoreUrl,
    http::{IdempotencyLayerBuilder, RoutePolicy},
};

use super::{
    jwt::{JwtKeyKind, JwtKeys},
    value::{AdminToken, LogFormat, LogLevel},
};

/// What the gateway runs with.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// `None` only in the demo: a temporary folder.
    pub store: Option<StoreUrl>,
    /// How the store is opened.
    pub store_options: StoreOptions,
    /// The file of the seal keys, if they are from one: it is read again when it changes.
    pub seal_file: Option<PathBuf>,
    /// The name of this service in a shared store.
    pub namespace: String,
    /// How the caller of a request is found.
    pub principal: PrincipalSource,
    /// The policy of routes that have none of their own.
    pub policy: RoutePolicy,
    /// The default upstream first, if there is one, then the others by name.
    pub upstreams: Vec<UpstreamConfig>,
    /// The index of the default upstream in `upstreams`.
    pub default_upstream: Option<usize>,
    /// The routes in the order of the file.
    pub routes: Vec<RouteConfig>,
    /// Limits of time for upstreams.
    pub timeouts: UpstreamTimeouts,
    /// Limits for clients.
    pub client: ClientLimits,
    /// The admin listener; `None` without one.
    pub admin: Option<AdminSettings>,
    /// Whether the `Host` header is part of a request's fingerprint.
    pub compare_host: bool,
    /// Whether `X-Forwarded-*` and `Forwarded` of a client are kept and added to.
    pub trust_forwarded: bool,
    /// How long requests in flight may take after the signal to stop.
    pub shutdown_grace: Duration,
    /// The most memory that all bodies together may take.
    pub buffer_bytes: usize,
    /// What is logged.
    pub log: LogSettings,
    /// True for `--demo`.
    pub demo: bool,
    /// Settings that are allowed and probably a mistake; the gateway logs them.
    pub warnings: Vec<String>,
}

impl GatewayConfig {
    /// The default of `listen`.
    pub const LISTEN: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
    /// The default of `namespace`.
    pub const NAMESPACE: &str = IdempotencyLayerBuilder::NAMESPACE;
    /// The default of `shutdown_grace`. Kubernetes kills a process 30 s after the signal.
    pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);
    /// The default of `buffer_bytes`.
    pub const BUFFER_BYTES: usize = IdempotencyLayerBuilder::BUFFER_BYTES;
}

/// How the caller of a request is found.
#[derive(Debug)]
pub enum PrincipalSource {
    /// All callers share one key space.
    Anonymous,
    /// By the `Authorization` header as a whole.
    Authorization,
    /// By a header that a proxy in front sets.
    Header(String),
    /// By a verified JWT.
    Jwt(JwtSettings),
}

/// What a JWT is verified with.
#[derive(Debug)]
pub struct JwtSettings {
    /// The file of the keys.
    pub file: PathBuf,
    /// What the file has to hold.
    pub kind: JwtKeyKind,
    /// The keys that the file held when the settings were read.
    pub keys: JwtKeys,
    /// The issuers that are accepted; all of them if empty.
    pub issuers: Vec<String>,
    /// The audiences that are accepted; all of them if empty.
    pub audiences: Vec<String>,
    /// By how much the clock of an issuer may differ.
    pub leeway: Duration,
}

impl JwtSettings {
    /// The default of `leeway`.
    pub const LEEWAY: Duration = Duration::from_secs(60);
    /// The most that `leeway` may be: clocks that differ by more have to be set.
    pub const MAX_LEEWAY: Duration = Duration::from_secs(60 * 60);
}

/// A service that requests are passed on to.
#[derive(Debug)]
pub struct UpstreamConfig {
    /// Its name in semel.toml, in logs and in metrics.
    pub name: String,
    /// Its host, and its port if that is not 80.
    pub authority: Authority,
    /// The path before every request's path: empty, or starts with a slash and ends without one.
    pub base: String,
    /// Whether it gets the client's `Host` header, not its own.
    pub preserve_host: bool,
}

impl UpstreamConfig {
    /// The name of the upstream of every path without a route.
    pub const DEFAULT: &str = "default";
}

/// Where requests of one kind go, and how they are protected.
#[derive(Debug)]
pub struct RouteConfig {
    /// `None`: every method.
    pub method: Option<Method>,
    /// The path, with parameters in braces.
    pub template: String,
    /// An index into `GatewayConfig::upstreams`; `None`: the default upstream.
    pub upstream: Option<usize>,
    /// `None`: the route only chooses the upstream, and requests are protected as without a route.
    pub policy: Option<RoutePolicy>,
}

/// Limits of time for upstreams.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamTimeouts {
    /// For a new connection.
    pub connect: Duration,
    /// Until the head of a response has arrived.
    pub header: Duration,
    /// Between two pieces of a response's body.
    pub body: Duration,
    /// How long a connection without a request is kept.
    pub idle: Duration,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(5), header: seconds(60), body: seconds(60), idle: seconds(4) }
    }
}

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Until the head of a request has arrived.
    pub header: Duration,
    /// Between two pieces of a request's body.
    pub body: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Connections at the same time.
    pub connections: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { header: seconds(10), body: seconds(30), idle: seconds(60), connections: 10_000 }
    }
}

/// The admin listener.
#[derive(Debug)]
pub struct AdminSettings {
    /// `None` only in the demo, which looks for a free port.
    pub listen: Option<SocketAddr>,
    /// The token for /metrics; always set when `listen` is not on loopback.
    pub token: Option<AdminToken>,
    /// Whether /readyz is 503 while an upstream cannot be reached.
    pub ready_needs_upstreams: bool,
}

/// What is logged, to stderr.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// From which level on.
    pub level: LogLevel,
    /// As text or as JSON.
    pub format: LogFormat,
}
