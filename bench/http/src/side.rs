//! The compared sides and the workloads.

use clap::ValueEnum;
use semel_bench::http::ExpectedAnswer;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerSide {
    /// axum and the handler.
    Bare,
    /// With semel's layer over the memory store.
    Semel,
    /// With a minimal layer that claims, compares and replays.
    Naive,
    /// With axum-idempotent over the memory store of its sessions.
    AxumIdempotent,
}

/// The kind of requests of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpWorkload {
    /// No request has a key.
    UnKeyed,
    /// Each request has a key of its own.
    FirstSeen,
    /// Each request has a key that was answered before.
    Replay,
}

impl ServerSide {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Semel, Self::Naive, Self::AxumIdempotent];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Semel => "semel",
            Self::Naive => "naive",
            Self::AxumIdempotent => "axum-idempotent",
        }
    }

    /// Whether this side is measured under `workload`.
    pub(crate) fn takes(self, workload: HttpWorkload) -> bool {
        match (self, workload) {
            (Self::Bare | Self::Semel, _) => true,
            (
                Self::Naive | Self::AxumIdempotent,
                HttpWorkload::FirstSeen | HttpWorkload::Replay,
            ) => true,
            // The cost of another layer for requests that it does not guard is of no interest.
            (Self::Naive | Self::AxumIdempotent, HttpWorkload::UnKeyed) => false,
        }
    }

    /// Whether requests of `workload` are answered by the handler or replayed.
    pub(crate) fn answers(self, workload: HttpWorkload) -> ExpectedAnswer {
        match (self, workload) {
            (_, HttpWorkload::UnKeyed | HttpWorkload::FirstSeen) => ExpectedAnswer::Handler,
            (Self::Bare, HttpWorkload::Replay) => ExpectedAnswer::Handler,
            (Self::Semel | Self::Naive, HttpWorkload::Replay) => {
                ExpectedAnswer::Recorded("idempotent-replayed")
            }
            (Self::AxumIdempotent, HttpWorkload::Replay) => {
                ExpectedAnswer::Recorded("idempotency-replayed")
            }
        }
    }
}

impl HttpWorkload {
    pub(crate) const ALL: [Self; 3] = [Self::UnKeyed, Self::FirstSeen, Self::Replay];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UnKeyed => "un-keyed",
            Self::FirstSeen => "first-seen",
            Self::Replay => "replay",
        }
    }
}
