//! What is compared, and under which work.

use clap::ValueEnum;
use semel_bench::http::Answer;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// axum and the handler.
    Bare,
    /// With semel's layer over the memory store.
    Semel,
    /// With the least that claims, compares and replays.
    Naive,
    /// With axum-idempotent over the memory store of its sessions.
    AxumIdempotent,
}

/// What the requests of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// No request has a key.
    UnKeyed,
    /// Each request has a key of its own.
    FirstSeen,
    /// Each request has a key that was answered before.
    Replay,
}

impl Side {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Semel, Self::Naive, Self::AxumIdempotent];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Semel => "semel",
            Self::Naive => "naive",
            Self::AxumIdempotent => "axum-idempotent",
        }
    }

    /// Whether it is measured under `workload`.
    pub(crate) fn takes(self, workload: Workload) -> bool {
        match (self, workload) {
            (Self::Bare | Self::Semel, _) => true,
            (Self::Naive | Self::AxumIdempotent, Workload::FirstSeen | Workload::Replay) => true,
            // What a rival takes of requests that it does not guard is no aim of ours.
            (Self::Naive | Self::AxumIdempotent, Workload::UnKeyed) => false,
        }
    }

    /// Who answers a request of `workload`.
    pub(crate) fn answers(self, workload: Workload) -> Answer {
        match (self, workload) {
            (_, Workload::UnKeyed | Workload::FirstSeen) => Answer::Handler,
            (Self::Bare, Workload::Replay) => Answer::Handler,
            (Self::Semel | Self::Naive, Workload::Replay) => {
                Answer::Recorded("idempotent-replayed")
            }
            (Self::AxumIdempotent, Workload::Replay) => Answer::Recorded("idempotency-replayed"),
        }
    }
}

impl Workload {
    pub(crate) const ALL: [Self; 3] = [Self::UnKeyed, Self::FirstSeen, Self::Replay];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UnKeyed => "un-keyed",
            Self::FirstSeen => "first-seen",
            Self::Replay => "replay",
        }
    }
}
