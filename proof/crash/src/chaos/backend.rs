//! The servers that a chaos run starts for itself, and the proxies in front of them.

use std::time::Duration;

use anyhow::{Result, bail};
use parking_lot::Mutex;
use semel_faults::{Fault, FaultProxy};
use semel_servers::{NATS, NatsCluster, POSTGRES, REDIS, Running, TestServer, VALKEY};

use super::fault::{FaultTarget, PlannedFault, ServerFault};

/// The servers of a chaos run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    Postgres,
    Redis,
    Valkey,
    Nats,
    /// Three nodes of one cluster.
    NatsCluster,
    /// PostgreSQL is the authority, Redis the front.
    Arbiter,
    /// Redis without persistence: it acknowledges and writes nothing to disk. A planted bug.
    Forgetful,
}

impl ServerKind {
    /// The servers that `store` needs. `None` for an address: the run may not kill the server there.
    pub(super) fn of(store: &str) -> Option<Self> {
        match store {
            "postgres:" => Some(Self::Postgres),
            "redis:" => Some(Self::Redis),
            "valkey:" => Some(Self::Valkey),
            "nats:" => Some(Self::Nats),
            "nats-cluster:" => Some(Self::NatsCluster),
            "arbiter:" => Some(Self::Arbiter),
            "forgetful:" => Some(Self::Forgetful),
            _ => None,
        }
    }

    /// The faults that can be injected.
    pub(super) fn possible_faults(self) -> Vec<PlannedFault> {
        if self == Self::NatsCluster {
            return vec![PlannedFault {
                target: FaultTarget::Server,
                fault: ServerFault::KillLeader,
            }];
        }
        let targets =
            [(FaultTarget::Server, Some(self.server())), (FaultTarget::Front, self.front())];
        let mut possible_faults = Vec::new();
        for (target, server) in targets {
            let Some(server) = server else { continue };
            let fitting = ServerFault::ALL.into_iter().filter(|fault| fault.fits(&server));
            possible_faults.extend(fitting.map(|fault| PlannedFault { target, fault }));
        }
        possible_faults
    }

    /// The server that decides. All but one write to disk before they answer, so what they acknowledged
    /// survives a kill.
    fn server(self) -> TestServer {
        match self {
            Self::Postgres | Self::Arbiter => POSTGRES,
            Self::Redis => REDIS.durable(),
            Self::Valkey => VALKEY.durable(),
            // What it wrote survives a kill of its process, but not a power cut.
            Self::Nats | Self::NatsCluster => NATS,
            Self::Forgetful => REDIS,
        }
    }

    /// The front of an arbiter. It is durable: it must not lose its removals.
    fn front(self) -> Option<TestServer> {
        match self {
            Self::Arbiter => Some(REDIS.durable()),
            Self::Postgres
            | Self::Redis
            | Self::Valkey
            | Self::Nats
            | Self::NatsCluster
            | Self::Forgetful => None,
        }
    }
}

/// The running servers of a chaos run.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) kind: ServerKind,
    topology: Topology,
}

#[derive(Debug)]
enum Topology {
    Proxies {
        server: Box<ProxiedServer>,
        front: Option<Box<ProxiedServer>>,
    },
    /// Workers connect to all nodes, without a proxy.
    Cluster(Mutex<NatsCluster>),
}

const BUCKET: &str = "crash";

/// A server and the proxy in front of it.
#[derive(Debug)]
pub(super) struct ProxiedServer {
    server: Mutex<Running>,
    proxy: FaultProxy,
}

impl Backend {
    pub(super) fn start(kind: ServerKind) -> Result<Self> {
        if kind == ServerKind::NatsCluster {
            let topology = Topology::Cluster(Mutex::new(NatsCluster::start(3)?));
            return Ok(Self { kind, topology });
        }
        let start = |server: &TestServer| ProxiedServer::start(server).map(Box::new);
        let front = kind.front().map(|front| start(&front)).transpose()?;
        let topology = Topology::Proxies { server: start(&kind.server())?, front };
        Ok(Self { kind, topology })
    }

    /// The URL for the workers.
    pub(super) fn url(&self) -> String {
        let (server, front) = match &self.topology {
            Topology::Proxies { server, front } => (server, front),
            Topology::Cluster(nodes) => {
                return format!("nats://{}/{BUCKET}", nodes.lock().addresses());
            }
        };
        let port = server.proxy.port();
        let postgres = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        let redis = |port: u16| format!("redis://127.0.0.1:{port}/");
        match (self.kind, front) {
            (ServerKind::Arbiter, Some(front)) => {
                format!("arbiter:{postgres}|{}", redis(front.proxy.port()))
            }
            (ServerKind::Postgres | ServerKind::Arbiter, _) => postgres,
            (ServerKind::Redis | ServerKind::Valkey | ServerKind::Forgetful, _) => redis(port),
            (ServerKind::Nats | ServerKind::NatsCluster, _) => {
                format!("nats://127.0.0.1:{port}/{BUCKET}")
            }
        }
    }

    pub(super) fn at(&self, target: FaultTarget) -> Result<&ProxiedServer> {
        match (&self.topology, target) {
            (Topology::Proxies { server, .. }, FaultTarget::Server) => Ok(server),
            (Topology::Proxies { front: Some(front), .. }, FaultTarget::Front) => Ok(front),
            (Topology::Proxies { .. } | Topology::Cluster(_), _) => {
                bail!("this run has no {target:?}")
            }
        }
    }

    /// Kills the leader of the stream with SIGKILL, restarts it after `span`, and waits until it has caught up.
    pub(super) fn kill_leader(&self, span: Duration) -> Result<()> {
        let Topology::Cluster(nodes) = &self.topology else { bail!("this run has no cluster") };
        let (mut nodes, stream) = (nodes.lock(), format!("KV_{BUCKET}"));
        let leader = nodes.leader(&stream)?;
        nodes.nodes[leader].kill()?;
        std::thread::sleep(span);
        nodes.nodes[leader].restart()?;
        nodes.caught_up(&stream)
    }
}

impl ProxiedServer {
    fn start(server: &TestServer) -> Result<Self> {
        let server = Running::start(server)?;
        let proxy = FaultProxy::start(server.port())?;
        Ok(Self { server: Mutex::new(server), proxy })
    }

    /// Sends SIGKILL.
    pub(super) fn kill(&self) -> Result<()> {
        self.server.lock().kill()
    }

    pub(super) fn restart(&self) -> Result<()> {
        self.server.lock().restart()
    }

    /// Stops the server with SIGSTOP for `span`.
    pub(super) fn pause(&self, span: Duration) -> Result<()> {
        let server = self.server.lock();
        server.pause()?;
        std::thread::sleep(span);
        server.resume()
    }

    /// Sets the fault of the proxy for `span`.
    pub(super) fn fault(&self, fault: Fault, span: Duration) {
        self.proxy.set(fault);
        std::thread::sleep(span);
        self.proxy.set(Fault::None);
    }

    pub(super) fn cut(&self) {
        self.proxy.cut();
    }

    /// Loses the next `count` replies, or as many as come within `patience`.
    pub(super) fn lose_replies(&self, count: u32, patience: Duration) {
        self.proxy.lose_replies(count);
        let deadline = std::time::Instant::now() + patience;
        while self.proxy.traps_left() > 0 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.proxy.lose_replies(0);
    }

    pub(super) fn flush_scripts(&self) -> Result<()> {
        self.server.lock().ask(&["SCRIPT", "FLUSH"]).map(drop)
    }
}
