//! The settings in their meaningful form: every value is checked, every name resolved.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::{Method, uri::Authority};
use semel::{
    StoreOptions, StoreUrl,
    http::{IdempotencyLayerBuilder, RoutePolicy},
};

use super::value::{LogFormat, LogLevel, Token};
use crate::gateway::principal::{KeyKind, Keys};

/// What the gateway runs with.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    /// `None` only in the demo: a temporary folder.
    pub(crate) store: Option<StoreUrl>,
    pub(crate) store_options: StoreOptions,
    /// Where the seal keys are from, if that is a file: it is read again when it changes.
    pub(crate) seal_file: Option<PathBuf>,
    pub(crate) namespace: String,
    pub(crate) principal: Who,
    /// Of routes without their own.
    pub(crate) policy: RoutePolicy,
    pub(crate) upstreams: Vec<Upstream>,
    /// Into `upstreams`.
    pub(crate) default_upstream: Option<usize>,
    pub(crate) routes: Vec<Route>,
    pub(crate) timeouts: Timeouts,
    pub(crate) client: ClientLimits,
    pub(crate) admin: Option<Admin>,
    /// Whether the `Host` header is part of what was asked.
    pub(crate) compare_host: bool,
    pub(crate) trust_forwarded: bool,
    pub(crate) shutdown_grace: Duration,
    pub(crate) buffer_bytes: usize,
    pub(crate) log: Log,
    pub(crate) demo: bool,
    /// What is allowed and probably not meant; to be logged.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Where the gateway listens unless told otherwise.
    pub(crate) const LISTEN: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
    /// The namespace unless set otherwise.
    pub(crate) const NAMESPACE: &str = IdempotencyLayerBuilder::NAMESPACE;
    /// How long requests in flight may take once the gateway is told to stop. Kubernetes kills after 30 s.
    pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);
    /// What all bodies that are held at the same time may take up.
    pub(crate) const BUFFER_BYTES: usize = IdempotencyLayerBuilder::BUFFER_BYTES;
}

/// Who a request is from.
#[derive(Debug)]
pub(crate) enum Who {
    Anonymous,
    Authorization,
    Header(String),
    Jwt(JwtSettings),
}

/// What a JWT is verified with.
#[derive(Debug)]
pub(crate) struct JwtSettings {
    pub(crate) file: PathBuf,
    /// What the file has to hold.
    pub(crate) kind: KeyKind,
    /// Of the file.
    pub(crate) keys: Keys,
    pub(crate) issuers: Vec<String>,
    pub(crate) audiences: Vec<String>,
    pub(crate) leeway: Duration,
}

impl JwtSettings {
    /// By how much the clock of an issuer may be off.
    pub(crate) const LEEWAY: Duration = Duration::from_secs(60);
    /// Clocks that differ by more need a clock, not leeway.
    pub(crate) const MAX_LEEWAY: Duration = Duration::from_secs(60 * 60);
}

/// A service that requests are passed on to.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) authority: Authority,
    /// Empty, or starts with a slash and ends without one.
    pub(crate) base: String,
    pub(crate) preserve_host: bool,
}

impl Upstream {
    /// The name of the upstream of every path without a route.
    pub(crate) const DEFAULT: &str = "default";
}

/// Where requests of one kind go, and how they are protected.
#[derive(Debug)]
pub(crate) struct Route {
    /// `None`: all of them.
    pub(crate) method: Option<Method>,
    pub(crate) template: String,
    /// Into `Config::upstreams`; `None`: the default one.
    pub(crate) upstream: Option<usize>,
    /// `None`: routing only, protected like a path without a route.
    pub(crate) policy: Option<RoutePolicy>,
}

/// Bounds on the upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    /// Until the head of an answer is there.
    pub(crate) header: Duration,
    /// Between two pieces of an answer.
    pub(crate) body: Duration,
    /// How long a connection without work is kept.
    pub(crate) idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(5), header: seconds(60), body: seconds(60), idle: seconds(4) }
    }
}

/// Bounds on clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLimits {
    /// Until the head of a request is there.
    pub(crate) header: Duration,
    /// Between two pieces of a request.
    pub(crate) body: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// Connections at the same time.
    pub(crate) connections: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { header: seconds(10), body: seconds(30), idle: seconds(60), connections: 10_000 }
    }
}

/// The listener for operators.
#[derive(Debug)]
pub(crate) struct Admin {
    /// `None` only in the demo, which looks for a free port.
    pub(crate) listen: Option<SocketAddr>,
    /// For /metrics; always there when `listen` is not on loopback.
    pub(crate) token: Option<Token>,
    /// True: /readyz says no while an upstream cannot be reached.
    pub(crate) ready_needs_upstreams: bool,
}

/// What is logged, to stderr.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub(crate) level: LogLevel,
    pub(crate) format: LogFormat,
}
