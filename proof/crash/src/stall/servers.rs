//! The servers of a stall run, and the stalls.

use std::{fmt, str::FromStr, thread, time::Duration};

use anyhow::{Error, Result, bail};
use semel_faults::{Fault, FaultProxy};
use semel_servers::{NATS, NatsCluster, POSTGRES, REDIS, Running, TestServer, VALKEY};

/// How a server stops to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// All its processes are stopped with SIGSTOP.
    Freeze,
    /// The network drops everything.
    Cut,
    /// It is killed, and started again at the end of the stall.
    Restart,
}

/// The store of a stall run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of servers")]
pub enum StalledStore {
    Postgres,
    Redis,
    Valkey,
    Nats,
    NatsCluster,
    /// PostgreSQL with Redis in front of it. Both stall together.
    Arbiter,
}

/// The running servers. Nodes reach them through proxies, except for a cluster, whose members clients must see.
#[derive(Debug)]
pub(super) struct StalledServers {
    store: StalledStore,
    servers: Vec<Running>,
    cluster: Option<NatsCluster>,
    /// One for each server, for the nodes that live.
    proxies: Vec<FaultProxy>,
    /// One for each server, for the node that dies.
    dead_node_proxies: Vec<FaultProxy>,
}

const BUCKET: &str = "stall";

impl StalledServers {
    pub(super) fn start(store: StalledStore) -> Result<Self> {
        let (mut servers, mut cluster) = (Vec::new(), None);
        match store {
            StalledStore::NatsCluster => cluster = Some(NatsCluster::start(3)?),
            _ => {
                for server in store.servers() {
                    servers.push(Running::start(&server)?);
                }
            }
        }
        let proxies = || -> Result<Vec<FaultProxy>> {
            Ok(servers.iter().map(|it| FaultProxy::start(it.port())).collect::<Result<_, _>>()?)
        };
        let (proxies, dead_node_proxies) = (proxies()?, proxies()?);
        Ok(Self { store, servers, cluster, proxies, dead_node_proxies })
    }

    /// The URL for a node that lives.
    pub(super) fn url(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("nats://{}/{BUCKET}", cluster.addresses()),
            None => self.store.url(&self.proxies),
        }
    }

    /// The URL for a node that dies, if it can be cut off alone.
    pub(super) fn dead_node_url(&self) -> Option<String> {
        self.cluster.is_none().then(|| self.store.url(&self.dead_node_proxies))
    }

    /// No server hears the dead node from now on.
    pub(super) fn cut_off_dead_node(&self) {
        self.dead_node_proxies.iter().for_each(|proxy| proxy.set(Fault::BlackHole));
    }

    /// No server answers for `span`.
    pub(super) fn stall(&mut self, kind: StallKind, span: Duration) -> Result<()> {
        match kind {
            StallKind::Freeze => {
                self.all().try_for_each(|server| server.pause())?;
                thread::sleep(span);
                self.all().try_for_each(|server| server.resume())?;
            }
            StallKind::Cut if self.proxies.is_empty() => bail!("a cluster has no proxies to cut"),
            StallKind::Cut => {
                self.proxies.iter().for_each(|proxy| proxy.set(Fault::BlackHole));
                thread::sleep(span);
                self.proxies.iter().for_each(|proxy| proxy.set(Fault::None));
            }
            StallKind::Restart => {
                self.all().try_for_each(Running::kill)?;
                thread::sleep(span);
                self.all().try_for_each(Running::restart)?;
            }
        }
        Ok(())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Running> {
        let nodes = self.cluster.iter_mut().flat_map(|cluster| &mut cluster.nodes);
        self.servers.iter_mut().chain(nodes)
    }
}

impl StalledStore {
    /// Every server writes to disk before it answers, so that a restart loses nothing.
    fn servers(self) -> Vec<TestServer> {
        match self {
            Self::Postgres => vec![POSTGRES],
            Self::Redis => vec![REDIS.durable()],
            Self::Valkey => vec![VALKEY.durable()],
            Self::Nats => vec![NATS],
            Self::Arbiter => vec![POSTGRES, REDIS.durable()],
            Self::NatsCluster => Vec::new(),
        }
    }

    fn url(self, proxies: &[FaultProxy]) -> String {
        let port = |at: usize| proxies[at].port();
        let postgres = || format!("postgres://postgres@127.0.0.1:{}/postgres", port(0));
        match self {
            Self::Postgres => postgres(),
            Self::Redis | Self::Valkey => format!("redis://127.0.0.1:{}/", port(0)),
            Self::Nats | Self::NatsCluster => format!("nats://127.0.0.1:{}/{BUCKET}", port(0)),
            Self::Arbiter => format!("arbiter:{}|redis://127.0.0.1:{}/", postgres(), port(1)),
        }
    }
}

impl FromStr for StalledStore {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "postgres" => Self::Postgres,
            "redis" => Self::Redis,
            "valkey" => Self::Valkey,
            "nats" => Self::Nats,
            "nats-cluster" => Self::NatsCluster,
            "arbiter" => Self::Arbiter,
            _ => bail!(
                "no store `{name}`; there are postgres, redis, valkey, nats, nats-cluster, arbiter"
            ),
        })
    }
}

impl FromStr for StallKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "freeze" => Self::Freeze,
            "cut" => Self::Cut,
            "restart" => Self::Restart,
            _ => bail!("no stall `{name}`; there are freeze, cut, restart"),
        })
    }
}

impl fmt::Display for StallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::Restart => "restart",
        })
    }
}
