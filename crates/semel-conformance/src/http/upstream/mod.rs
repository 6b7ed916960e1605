//! The upstream of the target. It counts its runs, keeps the request of each, and follows the instructions in the
//! request's `Test-*` headers. It never sleeps: runs wait at gates that a test opens.

mod body;
mod instructions;
mod log;

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body::Body;
use http_body_util::BodyExt;
use tower_service::Service;

pub(super) use self::instructions::{LATIN1_VALUE, header};
pub use self::{
    body::{BrokenOff, TestUpstreamBody},
    log::{HandlerRun, RunState},
};
use self::{
    instructions::UpstreamInstructions,
    log::{OngoingRun, UpstreamLog},
};
use super::serve::{TestServer, serve};

/// A counting service that follows the instructions in `Test-*` request headers. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct TestUpstream {
    log: UpstreamLog,
}

impl TestUpstream {
    /// An upstream that has run nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves it on a loopback port, for a target in another process. Dropping the server ends it.
    pub async fn serve(&self) -> TestServer {
        serve(self.clone()).await
    }

    /// The runs of a case so far, in order of arrival.
    #[must_use]
    pub fn runs(&self, case: &str) -> Vec<HandlerRun> {
        self.log.runs(case)
    }

    /// Waits until `count` runs of a case have arrived.
    pub async fn arrived(&self, case: &str, count: usize) {
        self.log.wait(|log| log.runs(case).len() >= count).await;
    }

    /// Waits until every run of a case has ended.
    pub async fn ended(&self, case: &str) {
        let over = |run: &HandlerRun| run.state != RunState::Running;
        self.log.wait(|log| log.runs(case).iter().all(over)).await;
    }

    /// Opens a gate: all runs that wait there continue, and a stream sends one more event.
    pub fn open(&self, gate: &str) {
        self.log.open(gate);
    }

    async fn handle<B: Body<Data = Bytes>>(
        self,
        request: Request<B>,
    ) -> Response<TestUpstreamBody> {
        let (parts, body) = request.into_parts();
        let instructions = UpstreamInstructions::of(&parts.headers);
        let running = self
            .log
            .record_arrival(&instructions.case, HandlerRun::of(&parts, received(body).await));
        if let Some(gate) = &instructions.gate {
            self.log.wait_for_openings(gate, 1).await;
        }
        assert!(!instructions.panics, "the request instructs the upstream to panic");
        self.answer(instructions, running)
    }

    fn answer(
        self,
        instructions: UpstreamInstructions,
        running: OngoingRun,
    ) -> Response<TestUpstreamBody> {
        let mut response =
            Response::new(body::response_body(&instructions, running.number(), &self.log));
        *response.status_mut() = instructions.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response.headers_mut().extend(instructions.headers);
        running.mark_answered();
        response
    }
}

/// A request whose body breaks off is a run too, with an empty body.
async fn received<B: Body<Data = Bytes>>(body: B) -> (Bytes, Option<http::HeaderMap>) {
    match body.collect().await {
        Ok(all) => {
            let trailers = all.trailers().cloned();
            (all.to_bytes(), trailers)
        }
        Err(_) => (Bytes::new(), None),
    }
}

impl<B> Service<Request<B>> for TestUpstream
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<TestUpstreamBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.handle(request).await) })
    }
}
