//! The compared sides and the workloads.

use clap::ValueEnum;
use semel_bench::http::ExpectedAnswer;

/// A side of the comparison: how requests reach the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProxySide {
    /// No proxy.
    Direct,
    /// nginx.
    Nginx,
    /// `semel gateway` over the memory store.
    Memory,
    /// `semel gateway` over the embedded store.
    Embedded,
}

/// The kind of requests of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayWorkload {
    /// GET, which is not guarded.
    Get,
    /// POST without a key.
    UnKeyed,
    /// POST; each request has a key of its own.
    FirstSeen,
    /// POST; each request has a key that was answered before.
    Replay,
}

impl ProxySide {
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Nginx, Self::Memory, Self::Embedded];

    pub(crate) const GATEWAYS: [Self; 2] = [Self::Memory, Self::Embedded];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Memory => "gateway, memory",
            Self::Embedded => "gateway, embedded",
        }
    }

    /// Whether this side is measured under `workload`.
    pub(crate) fn takes(self, workload: GatewayWorkload) -> bool {
        match (self, workload) {
            (Self::Direct | Self::Memory | Self::Embedded, _) => true,
            (Self::Nginx, GatewayWorkload::Get | GatewayWorkload::UnKeyed) => true,
            // To nginx, a key is a header like any other.
            (Self::Nginx, GatewayWorkload::FirstSeen | GatewayWorkload::Replay) => false,
        }
    }

    /// Whether requests of `workload` are answered by the upstream or replayed.
    pub(crate) fn answers(self, workload: GatewayWorkload) -> ExpectedAnswer {
        match (self, workload) {
            (Self::Memory | Self::Embedded, GatewayWorkload::Replay) => {
                ExpectedAnswer::Recorded("idempotent-replayed")
            }
            (Self::Direct | Self::Nginx, _)
            | (_, GatewayWorkload::Get | GatewayWorkload::UnKeyed | GatewayWorkload::FirstSeen) => {
                ExpectedAnswer::Handler
            }
        }
    }
}

impl GatewayWorkload {
    pub(crate) const ALL: [Self; 4] = [Self::Get, Self::UnKeyed, Self::FirstSeen, Self::Replay];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::UnKeyed => "POST, un-keyed",
            Self::FirstSeen => "POST, first-seen",
            Self::Replay => "POST, replay",
        }
    }
}
