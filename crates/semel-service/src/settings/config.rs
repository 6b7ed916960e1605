//! The settings in their meaningful form: every value is checked, every name resolved.
#![allow(missing_docs)]

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::{Method, uri::Authority};
use semel::{
    StoreOptions, StoreUrl,
    http::{IdempotencyLayerBuilder, RoutePolicy},
};

use super::{
    jwt::{KeyKind, Keys},
    value::{LogFormat, LogLevel, Token},
};

/// What the gateway runs with.
#[derive(Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// `None` only in the demo: a temporary folder.
    pub store: Option<StoreUrl>,
    pub store_options: StoreOptions,
    /// Where the seal keys are from, if that is a file: it is read again when it changes.
    pub seal_file: Option<PathBuf>,
    pub namespace: String,
    pub principal: Who,
    /// Of routes without their own.
    pub policy: RoutePolicy,
    pub upstreams: Vec<Upstream>,
    /// Into `upstreams`.
    pub default_upstream: Option<usize>,
    pub routes: Vec<Route>,
    pub timeouts: Timeouts,
    pub client: ClientLimits,
    pub admin: Option<Admin>,
    /// Whether the `Host` header is part of what was asked.
    pub compare_host: bool,
    pub trust_forwarded: bool,
    pub shutdown_grace: Duration,
    pub buffer_bytes: usize,
    pub log: Log,
    pub demo: bool,
    /// What is allowed and probably not meant; to be logged.
    pub warnings: Vec<String>,
}

impl Config {
    /// Where the gateway listens unless told otherwise.
    pub const LISTEN: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
    /// The namespace unless set otherwise.
    pub const NAMESPACE: &str = IdempotencyLayerBuilder::NAMESPACE;
    /// How long requests in flight may take once the gateway is told to stop. Kubernetes kills after 30 s.
    pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);
    /// What all bodies that are held at the same time may take up.
    pub const BUFFER_BYTES: usize = IdempotencyLayerBuilder::BUFFER_BYTES;
}

/// Who a request is from.
#[derive(Debug)]
pub enum Who {
    Anonymous,
    Authorization,
    Header(String),
    Jwt(JwtSettings),
}

/// What a JWT is verified with.
#[derive(Debug)]
pub struct JwtSettings {
    pub file: PathBuf,
    /// What the file has to hold.
    pub kind: KeyKind,
    /// Of the file.
    pub keys: Keys,
    pub issuers: Vec<String>,
    pub audiences: Vec<String>,
    pub leeway: Duration,
}

impl JwtSettings {
    /// By how much the clock of an issuer may be off.
    pub const LEEWAY: Duration = Duration::from_secs(60);
    /// Clocks that differ by more need a clock, not leeway.
    pub const MAX_LEEWAY: Duration = Duration::from_secs(60 * 60);
}

/// A service that requests are passed on to.
#[derive(Debug)]
pub struct Upstream {
    pub name: String,
    pub authority: Authority,
    /// Empty, or starts with a slash and ends without one.
    pub base: String,
    pub preserve_host: bool,
}

impl Upstream {
    /// The name of the upstream of every path without a route.
    pub const DEFAULT: &str = "default";
}

/// Where requests of one kind go, and how they are protected.
#[derive(Debug)]
pub struct Route {
    /// `None`: all of them.
    pub method: Option<Method>,
    pub template: String,
    /// Into `Config::upstreams`; `None`: the default one.
    pub upstream: Option<usize>,
    /// `None`: routing only, protected like a path without a route.
    pub policy: Option<RoutePolicy>,
}

/// Bounds on the upstream.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    /// Until the head of an answer is there.
    pub header: Duration,
    /// Between two pieces of an answer.
    pub body: Duration,
    /// How long a connection without work is kept.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(5), header: seconds(60), body: seconds(60), idle: seconds(4) }
    }
}

/// Bounds on clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Until the head of a request is there.
    pub header: Duration,
    /// Between two pieces of a request.
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

/// The listener for operators.
#[derive(Debug)]
pub struct Admin {
    /// `None` only in the demo, which looks for a free port.
    pub listen: Option<SocketAddr>,
    /// For /metrics; always there when `listen` is not on loopback.
    pub token: Option<Token>,
    /// True: /readyz says no while an upstream cannot be reached.
    pub ready_needs_upstreams: bool,
}

/// What is logged, to stderr.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}
