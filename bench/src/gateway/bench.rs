//! Measures one run: one side under one workload, in a closed or an open loop.

use std::{
    cell::Cell,
    iter,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use semel_bench::http::{self, ExpectedAnswer, LoadConnection, LoadRequest};

use crate::{
    options::GatewayBenchOptions,
    order,
    server::ProxyServer,
    side::{GatewayWorkload, ProxySide},
    upstream::BenchUpstream,
};

/// Figures of one run.
#[derive(Clone, Copy)]
pub(crate) struct GatewayRun {
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
    /// On each connection, the next request is sent when the last is answered.
    Closed,
    /// A fixed number of requests per second, whether or not others are answered.
    Open(f64),
}

/// Numbers of keys that were not sent yet.
#[derive(Default)]
pub(crate) struct FreshKeys(Cell<u64>);

impl FreshKeys {
    fn take(&self, count: u64) -> Range<u64> {
        let first = self.0.get();
        self.0.set(first + count);
        first..first + count
    }
}

/// The upstream and the proxies in front of it.
pub(crate) struct GatewaySetup<'a> {
    options: &'a GatewayBenchOptions,
    fresh: &'a FreshKeys,
    pub(crate) servers: Vec<ProxyServer>,
    upstream: BenchUpstream,
}

impl<'a> GatewaySetup<'a> {
    /// Starts all servers for `sides`. Each repeat has new processes and empty stores, so that all repeats are alike.
    pub(crate) async fn start(
        options: &'a GatewayBenchOptions,
        fresh: &'a FreshKeys,
        sides: &[ProxySide],
    ) -> Result<Self> {
        let upstream = BenchUpstream::start(options.answer).await?;
        let mut servers = Vec::new();
        for &side in sides {
            servers.push(ProxyServer::start(side, options, &upstream).await?);
        }
        Ok(Self { options, fresh, servers, upstream })
    }

    /// Warms up, measures, and checks that the upstream was called exactly when it should be.
    pub(crate) async fn measure(
        &mut self,
        server: usize,
        workload: GatewayWorkload,
        pace: Loop,
    ) -> Result<GatewayRun> {
        let Self { options, fresh, servers, upstream } = self;
        let server = &servers[server];
        let answer = server.side.answers(workload);
        let mut work = RunWork {
            connections: server.connect(options.connections).await?,
            request: order::request(workload, options),
            keys: RunKeys::of(workload, options, fresh),
            pace,
        };
        if answer != ExpectedAnswer::Handler {
            work.answer_all().await?;
        }
        work.send(answer, options.warm_up()).await?;
        let before = GatewayMeter::read(server, upstream).await?;
        let latency = work.send(answer, options.time()).await?;
        let spent = GatewayMeter::read(server, upstream).await?.since(&before);
        let runs = if answer == ExpectedAnswer::Handler { latency.len() } else { 0 };
        ensure!(spent.runs == runs, "the upstream was called {} times, not {runs}", spent.runs);
        Ok(GatewayRun::new(&latency, &spent))
    }
}

/// The connections, requests and keys of a run.
struct RunWork<'a> {
    connections: Vec<LoadConnection>,
    request: LoadRequest,
    keys: RunKeys<'a>,
    pace: Loop,
}

impl RunWork<'_> {
    async fn send(&mut self, answer: ExpectedAnswer, time: Duration) -> Result<Histogram<u64>> {
        let Self { connections, request, keys, pace } = self;
        let keys = |n| keys.of_connection(n);
        match *pace {
            Loop::Closed => http::run(connections, request, keys, answer, time).await,
            Loop::Open(rate) => http::run_at(connections, request, keys, answer, time, rate).await,
        }
    }

    /// Sends every key once, so that it can be replayed.
    async fn answer_all(&mut self) -> Result<()> {
        let Self { connections, request, keys, .. } = self;
        let keys = |n| keys.share(n);
        // It ends with the keys, long before this time.
        let time = Duration::from_secs(60);
        http::run(connections, request, keys, ExpectedAnswer::Handler, time).await?;
        Ok(())
    }
}

/// The keys of a run.
enum RunKeys<'a> {
    Fresh(&'a FreshKeys),
    /// A number of keys per connection, repeated.
    Repeated {
        first: u64,
        share: u64,
    },
}

impl<'a> RunKeys<'a> {
    fn of(workload: GatewayWorkload, options: &GatewayBenchOptions, fresh: &'a FreshKeys) -> Self {
        match workload {
            // A request without a key is the same for all numbers.
            GatewayWorkload::Get | GatewayWorkload::UnKeyed | GatewayWorkload::FirstSeen => {
                Self::Fresh(fresh)
            }
            GatewayWorkload::Replay => Self::Repeated {
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

    /// The keys that connection `n` repeats.
    fn share(&self, n: u64) -> Range<u64> {
        match self {
            Self::Fresh(_) => 0..0,
            Self::Repeated { first, share } => first + n * share..first + (n + 1) * share,
        }
    }
}

/// Calls of the upstream and processor times so far.
struct GatewayMeter {
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

impl GatewayMeter {
    async fn read(server: &ProxyServer, upstream: &mut BenchUpstream) -> Result<Self> {
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

impl GatewayRun {
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

    /// The processor time of proxy and upstream per request.
    pub(crate) fn whole_cpu(&self) -> f64 {
        self.proxy_cpu + self.upstream_cpu
    }
}
