//! A NATS cluster with JetStream on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::health;
use crate::nats::NATS;
use crate::running::Running;
use crate::site::free_port;

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Running nodes that replicate their streams.
#[derive(Debug)]
pub struct NatsCluster {
    /// The nodes.
    pub nodes: Vec<Running>,
}

impl NatsCluster {
    /// Starts `count` nodes and waits until a stream with as many replicas can be created.
    ///
    /// # Errors
    ///
    /// When a node does not start, or the cluster does not form.
    pub fn start(count: usize) -> Result<Self> {
        let buses: Vec<u16> = (0..count).map(|_| free_port()).collect::<Result<_>>()?;
        let address = |bus: &u16| format!("nats://127.0.0.1:{bus}");
        let routes = buses.iter().map(address).collect::<Vec<_>>().join(",");
        let mut nodes = Vec::new();
        for (at, bus) in buses.iter().enumerate() {
            let (name, cluster) = (format!("node-{at}"), address(bus));
            let node = NATS.args(["--server_name", &name, "--cluster_name", "semel-test"]);
            let node = node.args(["--cluster", &cluster, "--routes", &routes]);
            nodes.push(Running::start(&node)?);
        }
        let cluster = Self { nodes };
        cluster.await_cluster()?;
        Ok(cluster)
    }

    /// The addresses without a scheme, separated by commas: `127.0.0.1:1,127.0.0.1:2`.
    #[must_use]
    pub fn addresses(&self) -> String {
        let addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port()));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The index of the node that leads a stream now.
    ///
    /// # Errors
    ///
    /// When no node leads it within a minute.
    pub fn leader(&self, stream: &str) -> Result<usize> {
        self.until("has a leader", || {
            let running = self.nodes.iter();
            running.filter_map(|node| self.leader_by(node, stream).ok()).next()
        })
    }

    fn leader_by(&self, node: &Running, stream: &str) -> Result<usize> {
        let info = ask(node.port(), &format!("$JS.API.STREAM.INFO.{stream}"), "")?;
        let leader = info.split(r#""leader":"node-"#).nth(1).context("there is no leader")?;
        Ok(leader.split('"').next().unwrap_or_default().parse()?)
    }

    /// Waits until every replica of a stream has caught up.
    ///
    /// # Errors
    ///
    /// When they have not caught up within a minute.
    pub fn caught_up(&self, stream: &str) -> Result<()> {
        self.until("has caught up", || {
            let at = self.leader(stream).ok()?;
            let info =
                ask(self.nodes[at].port(), &format!("$JS.API.STREAM.INFO.{stream}"), "").ok()?;
            let current = info.matches(r#""current":true"#).count();
            (current + 1 >= self.nodes.len()).then_some(())
        })
    }

    fn await_cluster(&self) -> Result<()> {
        let count = self.nodes.len();
        let probe = format!(r#"{{"name":"probe","subjects":["probe"],"num_replicas":{count}}}"#);
        for node in &self.nodes {
            self.until("forms", || {
                let made = ask(node.port(), "$JS.API.STREAM.CREATE.probe", &probe).ok()?;
                (!made.contains(r#""error""#)).then_some(())
            })?;
        }
        ask(self.nodes[0].port(), "$JS.API.STREAM.DELETE.probe", "").map(drop)
    }

    fn until<T>(&self, what: &str, mut holds: impl FnMut() -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(it) = holds() {
                return Ok(it);
            }
            sleep(POLL);
        }
        bail!("not within {} s: the NATS cluster {what}", PATIENCE.as_secs())
    }
}

/// Sends one request and returns the reply, over a new connection.
fn ask(port: u16, subject: &str, body: &str) -> Result<String> {
    let mut conversation = health::connect(port)?;
    let mut line = String::new();
    conversation.read_line(&mut line)?;
    let (connect, length) =
        (r#"{"verbose":false,"headers":true,"no_responders":true}"#, body.len());
    let request =
        format!("CONNECT {connect}\r\nSUB answer 1\r\nPUB {subject} answer {length}\r\n{body}\r\n");
    conversation.get_mut().write_all(request.as_bytes())?;
    answer(&mut conversation)
}

fn answer(conversation: &mut BufReader<TcpStream>) -> Result<String> {
    loop {
        let mut line = String::new();
        ensure!(conversation.read_line(&mut line)? > 0, "the server closed the connection");
        if line.starts_with("MSG ") {
            let length = line.split_whitespace().last().unwrap_or_default().parse()?;
            let mut body = vec![0; length];
            conversation.read_exact(&mut body)?;
            return Ok(String::from_utf8(body)?);
        }
        ensure!(!line.starts_with("HMSG"), "no responders");
    }
}
