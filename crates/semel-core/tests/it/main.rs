//! The integration tests of semel-core.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod axum_handler;
mod cleanup_gauges;
mod engine;
mod layer_metrics;
mod redaction;
mod stuck_keys;
mod telemetry;

use std::{
    env,
    future::Future,
    io,
    process::Command,
    sync::{Arc, Mutex},
};

use tracing_subscriber::fmt::MakeWriter;

/// Runs `body` in a child process with one test, `name`. For tests that install a global metrics recorder or tracing
/// subscriber: the engine counts and logs on the background runtime too, which a recorder of one thread does not see,
/// and all tests of this process share that runtime.
fn in_own_process(name: &str, body: impl Future<Output = ()>) {
    const IS_CHILD: &str = "SEMEL_TEST_IS_CHILD";
    if env::var_os(IS_CHILD).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(body);
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(IS_CHILD, "1").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "{stdout}{}", String::from_utf8_lossy(&output.stderr));
}

/// Keeps what a tracing subscriber writes.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The number of lines with all these words.
    fn count(&self, words: &[&str]) -> usize {
        self.text().lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogBuffer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
