//! The log of runs and open gates, in one watch channel: a test waits for conditions, not for time.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, request::Parts};
use tokio::sync::watch;

/// One run of the handler, and its request.
#[derive(Clone, Debug)]
pub struct HandlerRun {
    /// The request's method.
    pub method: Method,
    /// Path and query, as they were sent.
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
    /// It was dropped before its answer, by a panic or by its caller.
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
pub(super) struct RunLogState {
    runs: HashMap<String, Vec<HandlerRun>>,
    openings: HashMap<String, usize>,
}

impl RunLogState {
    pub(super) fn runs(&self, case: &str) -> &[HandlerRun] {
        self.runs.get(case).map_or(&[], Vec::as_slice)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct RunLog(Arc<watch::Sender<RunLogState>>);

impl RunLog {
    pub(super) fn runs(&self, case: &str) -> Vec<HandlerRun> {
        self.0.borrow().runs(case).to_vec()
    }

    pub(super) fn arrive(&self, case: &str, run: HandlerRun) -> OngoingRun {
        let mut place = 0;
        self.0.send_modify(|state| {
            let runs = state.runs.entry(case.to_owned()).or_default();
            place = runs.len();
            runs.push(run);
        });
        OngoingRun { log: self.clone(), case: case.to_owned(), place, state: RunState::Dropped }
    }

    pub(super) fn open(&self, gate: &str) {
        self.0.send_modify(|state| *state.openings.entry(gate.to_owned()).or_default() += 1);
    }

    pub(super) async fn opened(&self, gate: &str, times: usize) {
        self.wait(|state| state.openings.get(gate).copied().unwrap_or_default() >= times).await;
    }

    pub(super) async fn wait(&self, mut condition: impl FnMut(&RunLogState) -> bool) {
        let mut changes = self.0.subscribe();
        let seen = changes.wait_for(|state| condition(state)).await;
        drop(seen.expect("the log that is waited on holds the sender"));
    }
}

/// A run that has not ended. If it is dropped before its answer, the log says so.
pub(super) struct OngoingRun {
    log: RunLog,
    case: String,
    place: usize,
    state: RunState,
}

impl OngoingRun {
    /// The number of the run in its case, from 1.
    pub(super) fn number(&self) -> usize {
        self.place + 1
    }

    pub(super) fn answered(mut self) {
        self.state = RunState::Answered;
    }
}

impl Drop for OngoingRun {
    fn drop(&mut self) {
        self.log.0.send_modify(|state| {
            let runs = state.runs.get_mut(&self.case).expect("a run is logged at its arrival");
            runs[self.place].state = self.state;
        });
    }
}
