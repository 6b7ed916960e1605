//! A server that runs as long as its guard lives.

use std::env;
use std::path::Path;
use std::process::Child;
use std::sync::Once;

use anyhow::{Context, Result, ensure};

use crate::record::{Owner, Record};
use crate::server::Server;
use crate::site::{Site, scratch};
use crate::start::{Failure, Group, attempt};
use crate::{postgres, resp};

/// Somebody may take the free port before the server does. It then exits, and gets another port.
const ATTEMPTS: u32 = 3;

/// A running server. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct Running {
    server: Server,
    site: Site,
    group: Group,
    record: Record,
    child: Child,
    handed_over: bool,
}

impl Running {
    /// Starts a server that is installed already, for one test.
    ///
    /// # Errors
    ///
    /// When it is not installed, or does not come up.
    pub fn start(server: &Server) -> Result<Self> {
        static SWEPT: Once = Once::new();
        let (home, tools) = (scratch("servers"), scratch("tools"));
        SWEPT.call_once(|| sweep(&home));
        Self::launch(server, &server.program(&tools)?, &home, Group::Callers)
    }

    /// Starts `program` with its data below `home`, and returns once it has answered a request.
    ///
    /// # Errors
    ///
    /// When it does not come up; the error holds the end of its log.
    pub fn launch(server: &Server, program: &Path, home: &Path, group: Group) -> Result<Self> {
        let mut attempts = 1;
        loop {
            let site = Site::open(server, program.to_owned(), home)?;
            let prepared = (server.prepare)(server, &site).map_err(Failure::Other);
            match prepared.and_then(|()| attempt(server, &site, group)) {
                Ok((child, record)) => {
                    let (server, handed_over) = (server.clone(), false);
                    return Ok(Self { server, site, group, record, child, handed_over });
                }
                Err(Failure::Exited(_)) if attempts < ATTEMPTS => attempts += 1,
                Err(failure) => {
                    let _ = site.remove();
                    return Err(failure.into_error());
                }
            }
            site.remove()?;
        }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.record.url
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.site.port
    }

    /// Where a Redis with certificates speaks TLS.
    #[must_use]
    pub const fn tls_port(&self) -> u16 {
        self.site.tls_port
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

    /// What it left on disk.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// SIGKILL, to the server and its children; the data stays as it is.
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
    /// When it still runs, or does not come up.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(!self.record.process.is_alive(), "{} still runs", self.server.name);
        let started = attempt(&self.server, &self.site, self.group);
        (self.child, self.record) = started.map_err(Failure::into_error)?;
        Ok(())
    }

    /// Asks it to end, and waits for that; the data stays as it is.
    ///
    /// # Errors
    ///
    /// When it survives.
    pub fn shut_down(&mut self) -> Result<()> {
        self.record.end()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGSTOP, to the server and its children: connections stay open, and nobody answers.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn pause(&self) -> Result<()> {
        self.record.process.pause()
    }

    /// SIGCONT.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn resume(&self) -> Result<()> {
        self.record.process.resume()
    }

    /// What a Redis answers to one command; the parts of a list are lines.
    ///
    /// # Errors
    ///
    /// When it answers with an error, or not at all.
    pub fn ask(&self, command: &[&str]) -> Result<String> {
        resp::ask(self.site.port, command)
    }

    /// What a PostgreSQL answers to one statement; `|` between columns.
    ///
    /// # Errors
    ///
    /// When it answers with an error, or not at all.
    pub fn sql(&self, statement: &str) -> Result<String> {
        postgres::sql(&self.site, statement)
    }

    /// Leaves it running, for `cargo xtask servers down` to stop.
    ///
    /// # Errors
    ///
    /// When its record cannot be written.
    pub fn hand_over(mut self) -> Result<()> {
        self.record.owner = Owner::Checkout;
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
        // Stopped by a signal, it would not hear that it is asked to end.
        let stopped = self.record.process.resume().and_then(|()| self.record.stop());
        if let Err(error) = stopped.and_then(|()| Ok(self.child.wait()?)) {
            eprintln!("warning: {error:#}");
        }
    }
}

/// The address in `variable`, such as `SEMEL_TEST_REDIS_URL`. A missing server is a failure.
///
/// # Panics
///
/// When it is not set; says how the test is run.
#[must_use]
pub fn needed(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run it through `cargo xtask test`, or do what `cargo xtask servers up` prints")
    })
}

/// Ends what killed runs left below `home`.
pub fn sweep(home: &Path) {
    let left = |record: &Record| record.owner != Owner::Checkout && record.is_free();
    for record in Record::all(home).iter().filter(|record| left(record)) {
        if let Err(error) = record.stop().context("left by an earlier run") {
            eprintln!("warning: {error:#}");
        }
    }
}
