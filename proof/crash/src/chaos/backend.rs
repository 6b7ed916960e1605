//! A server of the storm's own, behind a proxy of the storm's own.

use std::time::Duration;

use anyhow::{Result, bail};
use parking_lot::Mutex;
use semel_faults::{Fault, Proxy};
use semel_servers::{NATS, NatsCluster, POSTGRES, REDIS, Running, Server, VALKEY};

use super::fault::{Blow, Place, Strike};

/// Which server a storm is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Postgres,
    Redis,
    Valkey,
    Nats,
    /// Three nodes, of which one leads.
    NatsCluster,
    /// PostgreSQL decides, Redis replays.
    Arbiter,
    /// Redis as it must not be set up: it answers and writes nothing to disk.
    Forgetful,
}

impl Kind {
    /// The server that `store` asks for; an address has one already, which nobody may kill.
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

    /// What can happen to it.
    pub(super) fn strikes(self) -> Vec<Strike> {
        if self == Self::NatsCluster {
            return vec![Strike { place: Place::Server, blow: Blow::KillLeader }];
        }
        let places = [(Place::Server, Some(self.server())), (Place::Front, self.front())];
        let mut strikes = Vec::new();
        for (place, server) in places {
            let Some(server) = server else { continue };
            let fitting = Blow::ALL.into_iter().filter(|blow| blow.fits(&server));
            strikes.extend(fitting.map(|blow| Strike { place, blow }));
        }
        strikes
    }

    /// The server that decides. All but one write to disk before they answer: what they acknowledged
    /// survives them.
    fn server(self) -> Server {
        match self {
            Self::Postgres | Self::Arbiter => POSTGRES,
            Self::Redis => REDIS.durable(),
            Self::Valkey => VALKEY.durable(),
            // What it wrote survives its process, though not a power cut.
            Self::Nats | Self::NatsCluster => NATS,
            Self::Forgetful => REDIS,
        }
    }

    /// The server that only replays. It must not forget what was removed.
    fn front(self) -> Option<Server> {
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

/// The servers of a storm and the ways to them.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) kind: Kind,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Proxies {
        server: Box<Served>,
        front: Option<Box<Served>>,
    },
    /// To all of its nodes.
    Cluster(Mutex<NatsCluster>),
}

const BUCKET: &str = "crash";

/// A server and the way to it.
#[derive(Debug)]
pub(super) struct Served {
    server: Mutex<Running>,
    proxy: Proxy,
}

impl Backend {
    pub(super) fn start(kind: Kind) -> Result<Self> {
        if kind == Kind::NatsCluster {
            let way = Way::Cluster(Mutex::new(NatsCluster::start(3)?));
            return Ok(Self { kind, way });
        }
        let start = |server: &Server| Served::start(server).map(Box::new);
        let front = kind.front().map(|front| start(&front)).transpose()?;
        let way = Way::Proxies { server: start(&kind.server())?, front };
        Ok(Self { kind, way })
    }

    /// Where workers connect.
    pub(super) fn url(&self) -> String {
        let (server, front) = match &self.way {
            Way::Proxies { server, front } => (server, front),
            Way::Cluster(nodes) => return format!("nats://{}/{BUCKET}", nodes.lock().addresses()),
        };
        let port = server.proxy.port();
        let postgres = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        let redis = |port: u16| format!("redis://127.0.0.1:{port}/");
        match (self.kind, front) {
            (Kind::Arbiter, Some(front)) => {
                format!("arbiter:{postgres}|{}", redis(front.proxy.port()))
            }
            (Kind::Postgres | Kind::Arbiter, _) => postgres,
            (Kind::Redis | Kind::Valkey | Kind::Forgetful, _) => redis(port),
            (Kind::Nats | Kind::NatsCluster, _) => format!("nats://127.0.0.1:{port}/{BUCKET}"),
        }
    }

    pub(super) fn at(&self, place: Place) -> Result<&Served> {
        match (&self.way, place) {
            (Way::Proxies { server, .. }, Place::Server) => Ok(server),
            (Way::Proxies { front: Some(front), .. }, Place::Front) => Ok(front),
            (Way::Proxies { .. } | Way::Cluster(_), _) => bail!("this storm has no {place:?}"),
        }
    }

    /// SIGKILL of whoever leads; it is back after so long, and has caught up.
    pub(super) fn kill_leader(&self, span: Duration) -> Result<()> {
        let Way::Cluster(nodes) = &self.way else { bail!("this storm has no cluster") };
        let (mut nodes, stream) = (nodes.lock(), format!("KV_{BUCKET}"));
        let leader = nodes.leader(&stream)?;
        nodes.nodes[leader].kill()?;
        std::thread::sleep(span);
        nodes.nodes[leader].restart()?;
        nodes.caught_up(&stream)
    }
}

impl Served {
    fn start(server: &Server) -> Result<Self> {
        let server = Running::start(server)?;
        let proxy = Proxy::start(server.port())?;
        Ok(Self { server: Mutex::new(server), proxy })
    }

    /// SIGKILL.
    pub(super) fn kill(&self) -> Result<()> {
        self.server.lock().kill()
    }

    pub(super) fn restart(&self) -> Result<()> {
        self.server.lock().restart()
    }

    /// Stands still for so long.
    pub(super) fn pause(&self, span: Duration) -> Result<()> {
        let server = self.server.lock();
        server.pause()?;
        std::thread::sleep(span);
        server.resume()
    }

    /// Goes wrong for so long.
    pub(super) fn fault(&self, fault: Fault, span: Duration) {
        self.proxy.set(fault);
        std::thread::sleep(span);
        self.proxy.set(Fault::None);
    }

    pub(super) fn cut(&self) {
        self.proxy.cut();
    }

    /// Loses so many replies, if so many come.
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
