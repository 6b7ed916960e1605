//! Ambiguous framing: bytes that two servers could read in two ways. The gateway reads them in one way or refuses them,
//! and never runs a request that is hidden in them.

mod chunks;
mod codings;
mod lengths;
mod limits;
mod lines;
mod pipelines;
mod targets;
mod trailers;
mod versions;

use crate::harness::{ClientResponse, GatewayProcess, Setup, TestRequest, TestUpstream};

/// A hidden request that must never run.
pub(crate) const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: shop.example\r\n\r\n";

/// A gateway in front of an upstream that records what arrives.
pub(crate) struct FramingStage {
    pub(crate) upstream: TestUpstream,
    pub(crate) gateway: GatewayProcess,
}

impl FramingStage {
    pub(crate) async fn set() -> Self {
        let upstream = TestUpstream::counting().await;
        // A wrong guess of where a head or a body ends shows as a wait for more bytes.
        let config = "read_timeout = \"3s\"\n[client]\nheader = \"2s\"\nbody = \"2s\"\n\
                      [timeouts]\nheader = \"4s\"\n";
        let gateway = Setup::to(&upstream).config(config).start().await;
        Self { upstream, gateway }
    }

    /// Sends these bytes. They are refused with one of these statuses, the connection is closed, and
    /// nothing of them reaches the upstream.
    pub(crate) async fn refuses(
        &self,
        bytes: impl AsRef<[u8]>,
        statuses: &[u16],
    ) -> ClientResponse {
        let bytes = bytes.as_ref();
        let what = shown(bytes);
        let mut connection = self.gateway.connection().await;
        connection.write(bytes).await;
        let response =
            connection.read_response().await.unwrap_or_else(|| panic!("no answer: {what}"));
        assert!(statuses.contains(&response.status), "{what}: {response:?}");
        assert!(response.whole, "{what}: {response:?}");
        connection.assert_closed(&what).await;
        self.assert_nothing_came_of(&what).await;
        response
    }

    /// Like [`FramingStage::refuses`] with 400, and a hidden request behind the bytes.
    pub(crate) async fn refuses_with_tail(&self, bytes: impl AsRef<[u8]>) {
        self.refuses([bytes.as_ref(), HIDDEN.as_bytes()].concat(), &[400]).await;
    }

    /// Like [`FramingStage::refuses`], but closing the connection without a response is allowed, too.
    pub(crate) async fn refuses_somehow(&self, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
        let bytes = bytes.as_ref();
        let what = shown(bytes);
        let mut connection = self.gateway.connection().await;
        connection.write(bytes).await;
        if let Some(response) = connection.read_response().await {
            assert!(statuses.contains(&response.status), "{what}: {response:?}");
            connection.assert_closed(&what).await;
        }
        self.assert_nothing_came_of(&what).await;
    }

    /// Asserts that the gateway still serves. Everything that it sent upstream before has arrived by then.
    pub(crate) async fn assert_nothing_came_of(&self, what: &str) {
        let targets = self.targets().await;
        assert!(targets.is_empty(), "{what}: {targets:?} came through");
    }

    /// The targets that have reached the upstream, apart from the request that checks it.
    pub(crate) async fn targets(&self) -> Vec<String> {
        assert_eq!(self.gateway.request(TestRequest::get("/after")).await.status, 200);
        let received = self.upstream.received().into_iter().map(|received| received.target);
        received.filter(|target| target != "/after").collect()
    }

    /// The next request on this connection is answered, or the connection is closed; the hidden request did not run.
    pub(crate) async fn assert_no_second(&self, what: &str) {
        let targets = self.targets().await;
        let hidden = targets.iter().any(|target| target.contains("hidden"));
        assert!(!hidden, "{what}: {targets:?}");
    }
}

pub(crate) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().chars().take(400).collect()
}

/// The head of a keyed request with these lines in it, each with its end.
pub(crate) fn keyed(lines: &str) -> String {
    format!("POST /orders/7 HTTP/1.1\r\nHost: shop.example\r\nIdempotency-Key: k\r\n{lines}\r\n")
}

/// The head of a request without a key, which is forwarded while it arrives.
pub(crate) fn plain(lines: &str) -> String {
    keyed(lines).replace("Idempotency-Key: k\r\n", "")
}
