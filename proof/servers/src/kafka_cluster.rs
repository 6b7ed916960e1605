//! A Kafka cluster on loopback. Each node is broker and controller.

use std::panic::resume_unwind;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::kafka;
use crate::kafka_protocol::{Metadata, metadata};
use crate::running::Running;
use crate::server::TestServer;
use crate::site::free_port;

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Running nodes that replicate every topic to all of them. A write needs a majority.
#[derive(Debug)]
pub struct KafkaCluster {
    /// The nodes.
    pub nodes: Vec<Running>,
}

impl KafkaCluster {
    /// Starts `count` nodes of `server` and waits until each of them knows all.
    ///
    /// # Errors
    ///
    /// When a node does not start, or the cluster does not form.
    pub fn start(server: &TestServer, count: usize) -> Result<Self> {
        let controllers = (1..=count).map(|id| Ok(format!("{id}@127.0.0.1:{}", free_port()?)));
        let voters = controllers.collect::<Result<Vec<_>>>()?.join(",");
        // At the same time: no node answers before a majority runs.
        let started: Vec<_> = thread::scope(|scope| {
            let start = |id| {
                let node = kafka::node(server, id, &voters);
                scope.spawn(move || Running::start(&node))
            };
            let threads: Vec<_> = (1..=count).map(start).collect();
            let nodes =
                threads.into_iter().map(|it| it.join().unwrap_or_else(|it| resume_unwind(it)));
            nodes.collect()
        });
        let mut cluster = Self { nodes: Vec::new() };
        for node in started {
            cluster.nodes.push(node?);
        }
        cluster.complete()?;
        Ok(cluster)
    }

    /// The addresses without a scheme, separated by commas: `127.0.0.1:1,127.0.0.1:2`.
    #[must_use]
    pub fn addresses(&self) -> String {
        let addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port()));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The index of the running node that leads a partition now.
    ///
    /// # Errors
    ///
    /// When no node leads it within a minute.
    pub fn leader(&self, topic: &str, partition: i32) -> Result<usize> {
        self.until("has a leader", || {
            let known = self.known().next()?.partitions;
            let known = known.iter().find(|it| it.topic == topic && it.index == partition)?;
            let leader = usize::try_from(known.leader).ok()?.checked_sub(1)?;
            // For seconds after a kill, the others still name the killed node.
            self.nodes.get(leader).filter(|node| is_alive(node)).map(|_| leader)
        })
    }

    /// Waits until every replica of a topic has caught up.
    ///
    /// # Errors
    ///
    /// When they have not caught up within a minute.
    pub fn caught_up(&self, topic: &str) -> Result<()> {
        self.until("has caught up", || {
            let known = self.known().next()?.partitions;
            let mut replicas = known.iter().filter(|it| it.topic == topic).peekable();
            replicas.peek()?;
            replicas.all(|it| it.in_sync == it.replicas).then_some(())
        })
    }

    /// Waits until each node knows that all run.
    ///
    /// # Errors
    ///
    /// When they do not within a minute.
    pub fn complete(&self) -> Result<()> {
        self.until("is complete", || {
            let count = self.nodes.len();
            let complete = self.known().filter(|known| known.brokers.len() == count).count();
            (complete == count).then_some(())
        })
    }

    /// What each running node knows.
    fn known(&self) -> impl Iterator<Item = Metadata> {
        let running = self.nodes.iter().filter(|node| is_alive(node));
        running.filter_map(|node| metadata(node.port()).ok())
    }

    fn until<T>(&self, what: &str, mut holds: impl FnMut() -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(it) = holds() {
                return Ok(it);
            }
            sleep(POLL);
        }
        bail!("not within {} s: the Kafka cluster {what}", PATIENCE.as_secs())
    }
}

impl Drop for KafkaCluster {
    /// Kills the nodes. A node that is asked to stop first hands its partitions over, and for that the last ones
    /// find no majority: it took 12 s.
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Err(error) = node.kill() {
                eprintln!("warning: {error:#}");
            }
        }
    }
}

fn is_alive(node: &Running) -> bool {
    node.record().process.is_alive()
}
