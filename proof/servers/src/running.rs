//! A server that runs until its guard is dropped.

use std::env;
use std::path::Path;
use std::process::Child;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::record::{ServerOwner, ServerRecord};
use crate::server::TestServer;
use crate::site::{ServerSite, scratch};
use crate::start::{SignalGroup, StartFailure, attempt};
use crate::{kafka_protocol, postgres, resp};

/// Another process may take the free port before the server does. The server then exits, and is started on another
/// port.
const ATTEMPTS: u32 = 3;

/// How often a server is started again on its port and data, and the pause between two attempts.
const RESTARTS: u32 = 20;
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// A running server. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct Running {
    server: TestServer,
    site: ServerSite,
    group: SignalGroup,
    record: ServerRecord,
    child: Child,
    handed_over: bool,
}

impl Running {
    /// Starts an installed server for one test.
    ///
    /// # Errors
    ///
    /// When it is not installed, or does not start.
    pub fn start(server: &TestServer) -> Result<Self> {
        static SWEPT: Once = Once::new();
        let (home, tools) = (scratch("servers"), scratch("tools"));
        SWEPT.call_once(|| sweep(&home));
        Self::launch(server, &server.program(&tools)?, &home, SignalGroup::Callers)
    }

    /// Starts `program` with its data below `home`, and returns once it has answered a request.
    ///
    /// # Errors
    ///
    /// When it does not start; the error contains the end of its log.
    pub fn launch(
        server: &TestServer,
        program: &Path,
        home: &Path,
        group: SignalGroup,
    ) -> Result<Self> {
        let mut attempts = 1;
        loop {
            let site = ServerSite::open(server, program.to_owned(), home)?;
            let prepared = (server.prepare)(server, &site).map_err(StartFailure::Other);
            match prepared.and_then(|()| attempt(server, &site, group)) {
                Ok((child, record)) => {
                    let (server, handed_over) = (server.clone(), false);
                    return Ok(Self { server, site, group, record, child, handed_over });
                }
                Err(StartFailure::Exited(_)) if attempts < ATTEMPTS => attempts += 1,
                Err(failure) => {
                    let _ = site.remove();
                    return Err(failure.into_error());
                }
            }
            site.remove()?;
        }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.record.url
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.site.port
    }

    /// The port on which a Redis with certificates accepts TLS.
    #[must_use]
    pub const fn tls_port(&self) -> u16 {
        self.site.second_port
    }

    /// The folder it writes to.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.site.data
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.site.program
    }

    /// Its record on disk.
    #[must_use]
    pub const fn record(&self) -> &ServerRecord {
        &self.record
    }

    /// Sends SIGKILL to the server and its children. The data stays as it is.
    ///
    /// # Errors
    ///
    /// When it survives.
    pub fn kill(&mut self) -> Result<()> {
        self.record.process.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again on the same port and data, after [`Running::kill`] or [`Running::shut_down`].
    ///
    /// # Errors
    ///
    /// When it still runs, or does not start.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(!self.record.process.is_alive(), "{} still runs", self.server.name);
        // A process that a killed PostgreSQL had just forked may still hold its shared memory: the new server exits then.
        let mut attempts = 1;
        loop {
            match attempt(&self.server, &self.site, self.group) {
                Ok(started) => {
                    (self.child, self.record) = started;
                    return Ok(());
                }
                Err(StartFailure::Exited(_)) if attempts < RESTARTS => attempts += 1,
                Err(failure) => return Err(failure.into_error()),
            }
            thread::sleep(RESTART_PAUSE);
        }
    }

    /// Stops the server with its stop signal and waits. The data stays as it is.
    ///
    /// # Errors
    ///
    /// When it survives.
    pub fn shut_down(&mut self) -> Result<()> {
        self.record.end()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGSTOP to the server and its children: connections stay open, and no request is answered.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn pause(&self) -> Result<()> {
        self.record.process.pause()
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn resume(&self) -> Result<()> {
        self.record.process.resume()
    }

    /// Sends one command to a Redis and returns the reply as text, one line per element of a list.
    ///
    /// # Errors
    ///
    /// When the reply is an error, or there is none.
    pub fn ask(&self, command: &[&str]) -> Result<String> {
        resp::ask(self.site.port, command)
    }

    /// Runs one statement on a PostgreSQL and returns the rows as lines, with `|` between columns.
    ///
    /// # Errors
    ///
    /// When the statement fails, or there is no reply.
    pub fn sql(&self, statement: &str) -> Result<String> {
        postgres::sql(&self.site, statement)
    }

    /// Creates a topic on a Kafka, with as many replicas as its settings say.
    ///
    /// # Errors
    ///
    /// When the topic exists, or there is no reply.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        kafka_protocol::create_topic(self.site.port, name, partitions)
    }

    /// Leaves it running. `cargo xtask servers down` stops it.
    ///
    /// # Errors
    ///
    /// When its record cannot be written.
    pub fn hand_over(mut self) -> Result<()> {
        self.record.owner = ServerOwner::Checkout;
        self.record.save()?;
        self.handed_over = true;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        // A stopped process does not handle the stop signal, so it is continued first.
        let stopped = self.record.process.resume().and_then(|()| self.record.stop());
        if let Err(error) = stopped.and_then(|()| Ok(self.child.wait()?)) {
            eprintln!("warning: {error:#}");
        }
    }
}

/// The URL in `variable`, such as `SEMEL_TEST_REDIS_URL`. A test without its server fails.
///
/// # Panics
///
/// When the variable is not set. The message says how to run the test.
#[must_use]
pub fn needed(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run it through `cargo xtask test`, or do what `cargo xtask servers up` prints")
    })
}

/// Stops the servers that killed runs left below `home`.
pub fn sweep(home: &Path) {
    let left = |record: &ServerRecord| record.owner != ServerOwner::Checkout && record.is_free();
    for record in ServerRecord::all(home).iter().filter(|record| left(record)) {
        if let Err(error) = record.stop().context("left by an earlier run") {
            eprintln!("warning: {error:#}");
        }
    }
}
