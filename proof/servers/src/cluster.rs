//! A Redis Cluster of primaries only, on loopback.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::running::Running;
use crate::server::TestServer;
use crate::site::free_port;

const SLOTS: usize = 16384;
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Running nodes that have joined and own all slots.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes. They share the slots equally.
    pub nodes: Vec<Running>,
}

impl RedisCluster {
    /// Starts `count` nodes of `server` and waits until each of them reports a healthy cluster.
    ///
    /// # Errors
    ///
    /// When a node does not start, or the cluster does not form.
    pub fn start(server: &TestServer, count: usize) -> Result<Self> {
        let mut nodes = Vec::new();
        for at in 0..count {
            let bus = free_port()?.to_string();
            let clustered = server.clone().args(["--cluster-enabled", "yes"]).args([
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "2000",
            ]);
            let node = Running::start(&clustered)?;
            let (from, to) = (SLOTS * at / count, SLOTS * (at + 1) / count - 1);
            node.ask(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
            if let Some(first) = nodes.first() {
                let first: &Running = first;
                first.ask(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), &bus])?;
            }
            nodes.push(node);
        }
        let cluster = Self { nodes };
        cluster.come_together()?;
        Ok(cluster)
    }

    /// The addresses without a scheme, separated by commas: `127.0.0.1:1,127.0.0.1:2`.
    #[must_use]
    pub fn addresses(&self) -> String {
        let addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port()));
        addresses.collect::<Vec<_>>().join(",")
    }

    fn come_together(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.nodes.iter().all(|node| is_well(node, self.nodes.len())) {
                return Ok(());
            }
            sleep(POLL);
        }
        bail!("the cluster did not form within {} s", PATIENCE.as_secs())
    }
}

fn is_well(node: &Running, count: usize) -> bool {
    let slots = node.ask(&["CLUSTER", "SLOTS"]).unwrap_or_default();
    let owners = slots.lines().filter(|line| line.len() == 40).count();
    let info = node.ask(&["CLUSTER", "INFO"]).unwrap_or_default();
    let has = |line: &str| info.lines().any(|it| it == line);
    owners == count && has("cluster_state:ok") && has(&format!("cluster_known_nodes:{count}"))
}
