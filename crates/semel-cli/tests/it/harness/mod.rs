//! The test harness: the real binary, an upstream that records what it receives, and a client that sends exactly the
//! bytes it is given.

mod client_connection;
mod client_response;
mod command;
mod gateway;
mod http1;
mod jetstream;
#[cfg(feature = "kafka")]
mod kafka;
mod process;
mod received_request;
mod scripted_reply;
mod test_request;
mod test_upstream;
mod worker;

use std::time::Duration;

use tokio::time::{Instant, sleep};

pub(crate) use self::{
    client_connection::{ClientConnection, request_to},
    client_response::ClientResponse,
    command::{CommandOutput, KillOnDrop, closed_pipe, command, run, run_command},
    gateway::{GatewayProcess, Setup},
    jetstream::{JetStream, cloud_event},
    received_request::ReceivedRequest,
    scripted_reply::ScriptedReply,
    test_request::{HOST, TestRequest},
    test_upstream::{Reserved, TestUpstream, accept},
    worker::WorkerSetup,
};

#[cfg(feature = "kafka")]
pub(crate) use self::kafka::KafkaTopic;

/// No wait takes this long, even on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `done` returns true.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let started_at = Instant::now();
    while !done().await {
        assert!(started_at.elapsed() < PATIENCE, "{what}: this did not happen in time");
        sleep(Duration::from_millis(5)).await;
    }
}
