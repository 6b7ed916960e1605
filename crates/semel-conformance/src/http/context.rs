//! The context of one case: the target, and identifiers that no other case uses.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use tokio::{select, time::sleep};

use super::{
    HandlerRun, HttpTarget, SentRequest, TestRequest, TestResponse, TestUpstream,
    client::{PATIENCE, in_time},
    routes::PLAIN,
    upstream::header::{CASE, GATE},
};

/// The interval of polls for a condition that has no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) const KEY: &str = "idempotency-key";
pub(super) const AUTHORIZATION: &str = "authorization";
pub(super) const CONTENT_TYPE: &str = "content-type";

pub(super) struct CaseContext<'a> {
    pub(super) target: &'a dyn HttpTarget,
    /// The id of the case. The gate of the case has the same name.
    pub(super) id: String,
}

impl<'a> CaseContext<'a> {
    pub(super) fn new(target: &'a dyn HttpTarget) -> Self {
        Self { target, id: format!("{:016x}", rand::random::<u64>()) }
    }

    /// Builds a POST request of the principal Alice, with a key and a body.
    pub(super) fn post(&self, path: &str) -> TestRequest {
        TestRequest::new(self.target.base_url(), Method::POST, path)
            .with(CASE, &self.id)
            .with(AUTHORIZATION, self.alice())
            .with(KEY, self.key())
            .with(CONTENT_TYPE, "application/json")
            .body(r#"{"amount":1}"#)
    }

    pub(super) fn key(&self) -> String {
        format!("Key-{}", self.id)
    }

    pub(super) fn alice(&self) -> String {
        format!("Bearer alice-{}", self.id)
    }

    pub(super) fn bob(&self) -> String {
        format!("Bearer bob-{}", self.id)
    }

    pub(super) fn upstream(&self) -> &TestUpstream {
        self.target.upstream()
    }

    pub(super) fn runs(&self) -> Vec<HandlerRun> {
        self.upstream().runs(&self.id)
    }

    /// Asserts the number of runs so far.
    pub(super) fn assert_runs(&self, times: usize, promise: &str) {
        assert_eq!(self.runs().len(), times, "runs of the handler: {promise}");
    }

    /// Waits until `count` runs of this case in all have reached the handler.
    pub(super) async fn wait_arrived(&self, count: usize) {
        let arrival = self.upstream().arrived(&self.id, count);
        in_time(arrival, "wait for the expected runs to reach the handler").await;
    }

    /// Waits until every run of this case that has started has ended.
    pub(super) async fn wait_ended(&self) {
        in_time(self.upstream().ended(&self.id), "wait for the end of the runs").await;
    }

    /// Starts a run whose handler waits for [`CaseContext::open_gate`], and returns when it has reached the handler.
    pub(super) async fn start_held(&self, request: &TestRequest) -> SentRequest {
        let before = self.runs().len();
        let started = request.clone().set(GATE, &self.id).start().await;
        self.wait_arrived(before + 1).await;
        started
    }

    /// Lets the held runs of this case continue. The gate stays open.
    pub(super) fn open_gate(&self) {
        self.upstream().open(&self.id);
    }

    /// Sends `request` while a run is held at its gate. Panics if another run starts.
    pub(super) async fn send_while_held(
        &self,
        request: &TestRequest,
        promise: &str,
    ) -> TestResponse {
        let before = self.runs().len();
        select! {
            biased;
            () = self.upstream().arrived(&self.id, before + 1) => panic!("{promise}: it ran again"),
            answer = request.send() => answer,
        }
    }

    /// Gives earlier requests time to begin to wait, which a test cannot see from outside: later requests have passed
    /// the same target and store when this returns.
    pub(super) async fn send_unrelated_requests(&self) {
        for _ in 0..10 {
            let name = format!("{:016x}", rand::random::<u64>());
            self.post(PLAIN).set(CASE, &name).set(KEY, &name).send().await;
        }
    }

    /// Sends `request` until `wanted` accepts its answer.
    pub(super) async fn send_until(
        &self,
        request: &TestRequest,
        wanted: impl Fn(&TestResponse) -> bool,
        promise: &str,
    ) -> TestResponse {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = request.send().await;
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{promise}: still {answer:?}");
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends the first request of a case twice, and asserts that the second answer is the replay of the first.
    pub(super) async fn send_and_replay(
        &self,
        request: &TestRequest,
    ) -> (TestResponse, TestResponse) {
        let first = request.send().await;
        assert!(!first.is_replay(), "a first answer is not marked as a replay: {first:?}");
        let again = request.send().await;
        self.assert_runs(1, "the handler does not run for a retry");
        assert_replay_of(&first, &again);
        (first, again)
    }
}

/// Asserts that `again` replays the status, content type and body of `first`, and that no HTTP cache may store it.
pub(super) fn assert_replay_of(first: &TestResponse, again: &TestResponse) {
    assert!(again.is_replay(), "a replay has the header Idempotent-Replayed, {again:?}");
    assert_eq!(again.status, first.status, "a replay has the recorded status");
    assert_eq!(again.body, first.body, "a replay has the recorded body, byte for byte");
    let content_type = |answer: &TestResponse| answer.text(CONTENT_TYPE).map(str::to_owned);
    assert_eq!(content_type(again), content_type(first), "a replay has the recorded content type");
    let is_not_stored = again.text("cache-control").is_some_and(|rule| rule.contains("no-store"));
    assert!(is_not_stored, "HTTP caches must not store a replay: {again:?}");
}

/// The answers to sent requests, in their order.
pub(super) async fn answers(started: Vec<SentRequest>) -> Vec<TestResponse> {
    join_all(started.into_iter().map(SentRequest::response)).await
}
