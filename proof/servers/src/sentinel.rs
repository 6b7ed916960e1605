//! A Redis with a replica, watched by one sentinel that promotes the replica by itself.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::redis::REDIS;
use crate::running::Running;
use crate::server::TestServer;
use crate::site::ServerSite;

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

fn sentinel() -> TestServer {
    TestServer { name: "sentinel", prepare, launch, ..REDIS }
}

/// A sentinel stores its state in its settings file.
fn prepare(_: &TestServer, site: &ServerSite) -> Result<()> {
    Ok(fs::write(site.data.join("sentinel.conf"), "")?)
}

fn launch(_: &TestServer, site: &ServerSite) -> Result<Command> {
    let mut command = site.command(&site.program);
    command.arg(site.data.join("sentinel.conf")).arg("--sentinel");
    command.args(["--bind", "127.0.0.1", "--port", &site.port.to_string(), "--dir"]);
    command.arg(&site.data);
    Ok(command)
}

/// A primary, a replica and a sentinel. When the primary is killed, the sentinel promotes the replica within seconds.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The first primary.
    pub primary: Running,
    /// The replica, which is promoted.
    pub replica: Running,
    /// The sentinel.
    pub sentinel: Running,
}

impl RedisSentinel {
    /// The service name under which the sentinel knows the primary.
    pub const SERVICE: &str = "semel";

    /// Starts all three and waits until the sentinel knows the replica.
    ///
    /// # Errors
    ///
    /// When one of them does not start.
    pub fn start() -> Result<Self> {
        let primary = Running::start(&REDIS)?;
        let port = primary.port().to_string();
        let replica = Running::start(&REDIS.args(["--replicaof", &format!("127.0.0.1 {port}")]))?;
        let sentinel = Running::start(&sentinel())?;
        sentinel.ask(&["SENTINEL", "MONITOR", Self::SERVICE, "127.0.0.1", &port, "1"])?;
        for (option, value) in [("down-after-milliseconds", "1000"), ("failover-timeout", "5000")] {
            sentinel.ask(&["SENTINEL", "SET", Self::SERVICE, option, value])?;
        }
        let set = Self { primary, replica, sentinel };
        set.until("the sentinel knows the replica", Self::is_complete)?;
        Ok(set)
    }

    /// The port of the current primary, as the sentinel reports it.
    ///
    /// # Errors
    ///
    /// When the sentinel does not answer.
    pub fn primary_port(&self) -> Result<u16> {
        let address = self.sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE])?;
        Ok(address.lines().last().unwrap_or_default().parse()?)
    }

    /// Kills the primary and waits until the replica is promoted.
    ///
    /// # Errors
    ///
    /// When it is not promoted in time.
    pub fn fail_over(&mut self) -> Result<()> {
        self.primary.kill()?;
        self.until("the replica is promoted", |set| {
            let is_primary =
                || Ok::<_, anyhow::Error>(set.replica.ask(&["ROLE"])?.starts_with("master"));
            set.primary_port().is_ok_and(|port| port == set.replica.port())
                && is_primary().unwrap_or(false)
        })
    }

    fn is_complete(&self) -> bool {
        let linked = self.replica.ask(&["INFO", "replication"]).unwrap_or_default();
        let replicas =
            self.sentinel.ask(&["SENTINEL", "REPLICAS", Self::SERVICE]).unwrap_or_default();
        // A pair of lines: `flags` and its value, which is `slave` alone when the replica is healthy.
        let flags = replicas.lines().skip_while(|line| *line != "flags").nth(1);
        linked.contains("master_link_status:up") && flags == Some("slave")
    }

    fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if reached(self) {
                return Ok(());
            }
            sleep(POLL);
        }
        bail!("not within 30 s: {what}")
    }
}
