//! What every test here begins with: the real binary, an upstream that tells what it saw, and a client that
//! sends exactly the bytes it is given.

mod client_connection;
mod client_response;
mod command;
mod gateway;
mod http1;
mod process;
mod received_request;
mod scripted_reply;
mod test_request;
mod test_upstream;

use std::time::Duration;

use tokio::time::{Instant, sleep};

pub(crate) use self::{
    client_connection::{ClientConnection, request_to},
    client_response::ClientResponse,
    command::{CommandOutput, KillOnDrop, closed_pipe, command, run, run_command},
    gateway::{GatewayProcess, Setup},
    received_request::ReceivedRequest,
    scripted_reply::ScriptedReply,
    test_request::{HOST, TestRequest},
    test_upstream::{Reserved, TestUpstream, accept},
};

/// Nothing here takes so long on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `done`.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let started_at = Instant::now();
    while !done().await {
        assert!(started_at.elapsed() < PATIENCE, "{what}: it did not come to that");
        sleep(Duration::from_millis(5)).await;
    }
}
