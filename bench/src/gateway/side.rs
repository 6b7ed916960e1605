//! What is compared, and under which work.

use clap::ValueEnum;
use semel_bench::http::Answer;

/// A way to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// No proxy.
    Direct,
    /// nginx.
    Nginx,
    /// `semel gateway` over the memory store.
    Memory,
    /// `semel gateway` over the embedded store.
    Embedded,
}

/// What the requests of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// GET: nothing to guard.
    Get,
    /// POST without a key.
    UnKeyed,
    /// POST; each request has a key of its own.
    FirstSeen,
    /// POST; each request has a key that was answered before.
    Replay,
}

impl Side {
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

    /// Whether it is measured under `workload`.
    pub(crate) fn takes(self, workload: Workload) -> bool {
        match (self, workload) {
            (Self::Direct | Self::Memory | Self::Embedded, _) => true,
            (Self::Nginx, Workload::Get | Workload::UnKeyed) => true,
            // To nginx, a key is a header like any other.
            (Self::Nginx, Workload::FirstSeen | Workload::Replay) => false,
        }
    }

    /// Who answers a request of `workload`.
    pub(crate) fn answers(self, workload: Workload) -> Answer {
        match (self, workload) {
            (Self::Memory | Self::Embedded, Workload::Replay) => {
                Answer::Recorded("idempotent-replayed")
            }
            (Self::Direct | Self::Nginx, _)
            | (_, Workload::Get | Workload::UnKeyed | Workload::FirstSeen) => Answer::Handler,
        }
    }
}

impl Workload {
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
