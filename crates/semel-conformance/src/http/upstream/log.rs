//! What has happened at the test upstream: the runs of each case, and how often each gate was opened. It is kept in a
//! watch channel, so that a test can wait for a condition.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, request::Parts};
use tokio::sync::watch;

/// One run of the handler, and its request.
#[derive(Clone, Debug)]
pub struct HandlerRun {
    /// The request's method.
    pub method: Method,
    /// Path and query, as the upstream received them.
    pub target: String,
    /// All request headers.
    pub headers: HeaderMap,
    /// The whole request body.
    pub body: Bytes,
    /// Trailers after the body.
    pub trailers: Option<HeaderMap>,
    /// Whether and how it has ended.
    pub state: RunState,
}

/// Whether and how a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It has not ended.
    Running,
    /// It returned its answer.
    Answered,
    /// It panicked, or the server dropped its future, before it returned an answer.
    Dropped,
}

impl HandlerRun {
    pub(super) fn of(parts: &Parts, (body, trailers): (Bytes, Option<HeaderMap>)) -> Self {
        let target = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let (method, headers) = (parts.method.clone(), parts.headers.clone());
        Self { method, target, headers, body, trailers, state: RunState::Running }
    }
}

#[derive(Debug, Default)]
pub(super) struct UpstreamEvents {
    /// By case.
    runs: HashMap<String, Vec<HandlerRun>>,
    /// How often each gate was opened. A gate never closes.
    openings: HashMap<String, usize>,
}

impl UpstreamEvents {
    pub(super) fn runs(&self, case: &str) -> &[HandlerRun] {
        self.runs.get(case).map_or(&[], Vec::as_slice)
    }
}

/// A handle to the log; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamLog(Arc<watch::Sender<UpstreamEvents>>);

impl UpstreamLog {
    pub(super) fn runs(&self, case: &str) -> Vec<HandlerRun> {
        self.0.borrow().runs(case).to_vec()
    }

    /// Records a run that has reached the handler.
    pub(super) fn record_arrival(&self, case: &str, run: HandlerRun) -> OngoingRun {
        let mut index = 0;
        self.0.send_modify(|events| {
            let runs = events.runs.entry(case.to_owned()).or_default();
            index = runs.len();
            runs.push(run);
        });
        OngoingRun {
            log: self.clone(),
            case: case.to_owned(),
            index,
            state_on_drop: RunState::Dropped,
        }
    }

    /// Opens a gate, once more if it is open.
    pub(super) fn open(&self, gate: &str) {
        self.0.send_modify(|events| *events.openings.entry(gate.to_owned()).or_default() += 1);
    }

    /// Waits until a gate has been opened this many times.
    pub(super) async fn wait_for_openings(&self, gate: &str, times: usize) {
        self.wait(|events| events.openings.get(gate).copied().unwrap_or_default() >= times).await;
    }

    /// Waits until a condition holds.
    pub(super) async fn wait(&self, mut condition: impl FnMut(&UpstreamEvents) -> bool) {
        let mut changes = self.0.subscribe();
        let matched = changes.wait_for(|events| condition(events)).await;
        drop(matched.expect("self keeps the sender alive"));
    }
}

/// A run that has not ended. Dropped without [`OngoingRun::mark_answered`], it is recorded as [`RunState::Dropped`].
#[must_use]
pub(super) struct OngoingRun {
    log: UpstreamLog,
    case: String,
    index: usize,
    state_on_drop: RunState,
}

impl OngoingRun {
    /// The number of the run in its case, from 1.
    pub(super) fn number(&self) -> usize {
        self.index + 1
    }

    pub(super) fn mark_answered(mut self) {
        self.state_on_drop = RunState::Answered;
    }
}

impl Drop for OngoingRun {
    fn drop(&mut self) {
        self.log.0.send_modify(|events| {
            let runs = events.runs.get_mut(&self.case).expect("a run is logged at its arrival");
            runs[self.index].state = self.state_on_drop;
        });
    }
}
