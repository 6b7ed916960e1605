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

/// The pause between two polls for a condition that no call can wait for.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) const KEY: &str = "idempotency-key";
pub(super) const AUTHORIZATION: &str = "authorization";
pub(super) const CONTENT_TYPE: &str = "content-type";

pub(super) struct CaseContext<'a> {
    pub(super) target: &'a dyn HttpTarget,
    /// The case id, and the name of its gate.
    pub(super) id: String,
}

impl<'a> CaseContext<'a> {
    pub(super) fn new(target: &'a dyn HttpTarget) -> Self {
        Self { target, id: format!("{:016x}", rand::random::<u64>()) }
    }

    /// A request of the principal Alice, with a key and a body.
    pub(super) fn post(&self, target: &str) -> TestRequest {
        TestRequest::new(self.target.base_url(), Method::POST, target)
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

    pub(super) async fn wait_arrived(&self, count: usize) {
        let arrival = self.upstream().arrived(&self.id, count);
        in_time(arrival, "the expected runs reach the handler").await;
    }

    pub(super) async fn wait_ended(&self) {
        in_time(self.upstream().ended(&self.id), "a run ends").await;
    }

    /// Starts a run that waits until [`CaseContext::open`].
    pub(super) async fn start_held(&self, request: &TestRequest) -> SentRequest {
        let before = self.runs().len();
        let started = request.clone().set(GATE, &self.id).start().await;
        self.wait_arrived(before + 1).await;
        started
    }

    pub(super) fn open_gate(&self) {
        self.upstream().open(&self.id);
    }

    /// The answer to `request` while a run waits at its gate. No other run may start.
    pub(super) async fn meanwhile(&self, request: &TestRequest, promise: &str) -> TestResponse {
        let before = self.runs().len();
        select! {
            answer = request.send() => answer,
            () = self.upstream().arrived(&self.id, before + 1) => panic!("{promise}: it ran again"),
        }
    }

    /// Gives earlier requests time to reach the point where they wait. A test cannot see a waiter from outside, but
    /// when later requests have passed the same target and store, an earlier one is waiting.
    pub(super) async fn send_unrelated_requests(&self) {
        for _ in 0..10 {
            let name = format!("{:016x}", rand::random::<u64>());
            let stranger = self.post(PLAIN).set(CASE, &name).set(KEY, &name);
            stranger.send().await;
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
            sleep(PAUSE).await;
        }
    }

    /// Sends a request twice and asserts that the second answer is the replay of the first.
    pub(super) async fn send_and_replay(
        &self,
        request: &TestRequest,
    ) -> (TestResponse, TestResponse) {
        let first = request.send().await;
        assert!(!first.is_replay(), "a first answer is not marked as a replay: {first:?}");
        let again = request.send().await;
        self.assert_runs(1, "a retry does not run");
        assert_replay_of(&first, &again);
        (first, again)
    }
}

/// Asserts that `again` is a replay of `first`, byte for byte.
pub(super) fn assert_replay_of(first: &TestResponse, again: &TestResponse) {
    assert!(again.is_replay(), "a replay is marked Idempotent-Replayed: true: {again:?}");
    assert_eq!(again.status, first.status, "a replay has the recorded status");
    assert_eq!(again.body, first.body, "a replay has the recorded body, byte for byte");
    let kind = |answer: &TestResponse| answer.text(CONTENT_TYPE).map(str::to_owned);
    assert_eq!(kind(again), kind(first), "a replay has the recorded content type");
    let fresh = again.text("cache-control").is_some_and(|rule| rule.contains("no-store"));
    assert!(fresh, "no cache keeps a replay: {again:?}");
}

/// The answers to sent requests, in their order.
pub(super) async fn answers(started: Vec<SentRequest>) -> Vec<TestResponse> {
    join_all(started.into_iter().map(SentRequest::response)).await
}
