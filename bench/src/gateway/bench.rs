//! One run: one side under one workload, closed or open loop.

use std::{
    cell::Cell,
    iter,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use semel_bench::http::{self, Answer, Connection, Request};

use crate::{
    options::Options,
    order,
    server::Server,
    side::{Side, Workload},
    upstream::Upstream,
};

/// Figures of one run.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Microseconds of processor time per request.
    pub(crate) proxy_cpu: f64,
    pub(crate) upstream_cpu: f64,
}

/// When requests are sent.
#[derive(Clone, Copy)]
pub(crate) enum Loop {
    /// One as soon as the last is answered, on each connection.
    Closed,
    /// So many per second, whatever becomes of them.
    Open(f64),
}

/// Numbers of keys that nobody has sent.
#[derive(Default)]
pub(crate) struct Fresh(Cell<u64>);

impl Fresh {
    fn take(&self, count: u64) -> Range<u64> {
        let first = self.0.get();
        self.0.set(first + count);
        first..first + count
    }
}

/// The upstream and the ways to it.
pub(crate) struct Site<'a> {
    options: &'a Options,
    fresh: &'a Fresh,
    pub(crate) servers: Vec<Server>,
    upstream: Upstream,
}

impl<'a> Site<'a> {
    /// Starts all that `sides` need. A repeat has new processes and empty stores, so that all
    /// repeats are alike.
    pub(crate) async fn start(
        options: &'a Options,
        fresh: &'a Fresh,
        sides: &[Side],
    ) -> Result<Self> {
        let upstream = Upstream::start(options.answer).await?;
        let mut servers = Vec::new();
        for &side in sides {
            servers.push(Server::start(side, options, &upstream).await?);
        }
        Ok(Self { options, fresh, servers, upstream })
    }

    /// Warms up, then measures, and checks that the upstream was asked when it should be and only
    /// then.
    pub(crate) async fn measure(
        &mut self,
        server: usize,
        workload: Workload,
        pace: Loop,
    ) -> Result<Run> {
        let Self { options, fresh, servers, upstream } = self;
        let server = &servers[server];
        let answer = server.side.answers(workload);
        let mut work = Work {
            connections: server.connect(options.connections).await?,
            request: order::request(workload, options),
            keys: Keys::of(workload, options, fresh),
            pace,
        };
        if answer != Answer::Handler {
            work.answer_all().await?;
        }
        work.send(answer, options.warm_up()).await?;
        let before = Meter::read(server, upstream).await?;
        let latency = work.send(answer, options.time()).await?;
        let spent = Meter::read(server, upstream).await?.since(&before);
        let runs = if answer == Answer::Handler { latency.len() } else { 0 };
        ensure!(spent.runs == runs, "the upstream was asked {} times, not {runs}", spent.runs);
        Ok(Run::new(&latency, &spent))
    }
}

/// What a run sends.
struct Work<'a> {
    connections: Vec<Connection>,
    request: Request,
    keys: Keys<'a>,
    pace: Loop,
}

impl Work<'_> {
    async fn send(&mut self, answer: Answer, time: Duration) -> Result<Histogram<u64>> {
        let Self { connections, request, keys, pace } = self;
        let keys = |n| keys.of_connection(n);
        match *pace {
            Loop::Closed => http::run(connections, request, keys, answer, time).await,
            Loop::Open(rate) => http::run_at(connections, request, keys, answer, time, rate).await,
        }
    }

    /// Has all keys answered once, so that they can be replayed.
    async fn answer_all(&mut self) -> Result<()> {
        let Self { connections, request, keys, .. } = self;
        let keys = |n| keys.share(n);
        // No hurry: it ends with the keys.
        let time = Duration::from_secs(60);
        http::run(connections, request, keys, Answer::Handler, time).await?;
        Ok(())
    }
}

/// The keys of a run.
enum Keys<'a> {
    Fresh(&'a Fresh),
    /// So many for each connection, over and over.
    Repeated {
        first: u64,
        share: u64,
    },
}

impl<'a> Keys<'a> {
    fn of(workload: Workload, options: &Options, fresh: &'a Fresh) -> Self {
        match workload {
            // Without a key in it, a request is the same under all numbers.
            Workload::Get | Workload::UnKeyed | Workload::FirstSeen => Self::Fresh(fresh),
            Workload::Replay => Self::Repeated {
                first: fresh.take(options.replayed).start,
                share: options.replayed / options.connections as u64,
            },
        }
    }

    fn of_connection(&self, n: u64) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::Fresh(fresh) => Box::new(iter::repeat_with(|| fresh.take(1).start)),
            Self::Repeated { .. } => Box::new(self.share(n).cycle()),
        }
    }

    /// What connection `n` repeats.
    fn share(&self, n: u64) -> Range<u64> {
        match self {
            Self::Fresh(_) => 0..0,
            Self::Repeated { first, share } => first + n * share..first + (n + 1) * share,
        }
    }
}

/// What was done so far, or between two looks.
struct Meter {
    at: Instant,
    runs: u64,
    proxy_cpu: Duration,
    upstream_cpu: Duration,
}

/// The difference of two meters.
struct Spent {
    time: Duration,
    runs: u64,
    proxy_cpu: Duration,
    upstream_cpu: Duration,
}

impl Meter {
    async fn read(server: &Server, upstream: &mut Upstream) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            proxy_cpu: server.cpu()?,
            upstream_cpu: upstream.process.cpu()?,
            runs: upstream.runs().await?,
        })
    }

    fn since(&self, earlier: &Self) -> Spent {
        Spent {
            time: self.at - earlier.at,
            runs: self.runs - earlier.runs,
            proxy_cpu: self.proxy_cpu - earlier.proxy_cpu,
            upstream_cpu: self.upstream_cpu - earlier.upstream_cpu,
        }
    }
}

impl Run {
    fn new(latency: &Histogram<u64>, spent: &Spent) -> Self {
        let count = latency.len() as f64;
        let quantile = |q| latency.value_at_quantile(q) as f64 / 1e6;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count;
        Self {
            rate: count / spent.time.as_secs_f64(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            proxy_cpu: each(spent.proxy_cpu),
            upstream_cpu: each(spent.upstream_cpu),
        }
    }

    /// Processor time of all that a request takes.
    pub(crate) fn whole_cpu(&self) -> f64 {
        self.proxy_cpu + self.upstream_cpu
    }
}
