//! A Redis with a replica, watched by one sentinel that promotes the replica by itself.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::redis::REDIS;
use crate::running::Running;
use crate::server::Server;
use crate::site::Site;

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

fn sentinel() -> Server {
    Server { name: "sentinel", prepare, launch, ..REDIS }
}

/// A sentinel keeps what it learns in its settings.
fn prepare(_: &Server, site: &Site) -> Result<()> {
    Ok(fs::write(site.data.join("sentinel.conf"), "")?)
}

fn launch(_: &Server, site: &Site) -> Result<Command> {
    let mut command = site.command(&site.program);
    command.arg(site.data.join("sentinel.conf")).arg("--sentinel");
    command.args(["--bind", "127.0.0.1", "--port", &site.port.to_string(), "--dir"]);
    command.arg(&site.data);
    Ok(command)
}

/// Three processes. Killing the primary makes the replica take its place within seconds.
#[derive(Debug)]
pub struct RedisSentinel {
    /// Where writes go at first.
    pub primary: Running,
    /// Takes its place.
    pub replica: Running,
    /// Knows who is which.
    pub sentinel: Running,
}

impl RedisSentinel {
    /// The name that clients ask the sentinel for.
    pub const SERVICE: &str = "semel";

    /// Starts all three and waits until the sentinel has seen the replica.
    ///
    /// # Errors
    ///
    /// When one of them does not come up.
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
        set.until("the sentinel saw the replica", Self::is_complete)?;
        Ok(set)
    }

    /// The port of the node that the sentinel takes for the primary.
    ///
    /// # Errors
    ///
    /// When the sentinel does not answer.
    pub fn primary_port(&self) -> Result<u16> {
        let address = self.sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE])?;
        Ok(address.lines().last().unwrap_or_default().parse()?)
    }

    /// Kills the primary and waits until the replica has taken its place.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn fail_over(&mut self) -> Result<()> {
        self.primary.kill()?;
        self.until("the replica was promoted", |set| {
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
        // A pair of lines: `flags` and what they are, `slave` alone when all is well.
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
        bail!("waited in vain until {what}")
    }
}
