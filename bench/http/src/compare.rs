//! Measures all sides under all workloads, in turns, so that a busy minute of the machine affects all of them.

use std::{
    cell::Cell,
    iter,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use semel_bench::{
    http::{self, ExpectedAnswer, LoadConnection, LoadRequest},
    report::cpu,
};

use crate::{
    HttpBenchOptions, order,
    server::BenchServer,
    side::{HttpWorkload, ServerSide},
    tables,
};

/// Figures of one side in one run; times in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct HttpRun {
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Processor time of the server per request.
    pub(crate) cpu: f64,
    /// Processor time of the load per request.
    pub(crate) load_cpu: f64,
}

/// The runs of one side under one workload, by repeat.
pub(crate) struct HttpRuns {
    pub(crate) workload: HttpWorkload,
    pub(crate) side: ServerSide,
    pub(crate) runs: Vec<HttpRun>,
}

/// Measures and reports.
pub(crate) async fn run(options: &HttpBenchOptions) -> Result<()> {
    let sides = options.sides();
    let mut table: Vec<HttpRuns> = HttpWorkload::ALL
        .into_iter()
        .flat_map(|workload| sides.iter().map(move |&side| (workload, side)))
        .filter(|(workload, side)| side.takes(*workload))
        .map(|(workload, side)| HttpRuns { workload, side, runs: Vec::new() })
        .collect();
    announce(options, table.len());
    let mut servers = Vec::new();
    for &side in &sides {
        servers.push(BenchServer::start(side, options.connections).await?);
    }
    let fresh = UnusedKeys(Cell::new(0));
    for repeat in 0..options.repeats {
        // The first side goes last next time, so that no side always follows the same one.
        servers.rotate_left(usize::from(repeat > 0));
        for workload in HttpWorkload::ALL {
            for server in servers.iter_mut().filter(|server| server.side.takes(workload)) {
                let side = server.side;
                let run = ServerBench { options, server, fresh: &fresh }.measure(workload).await;
                let run = run.with_context(|| format!("{}, {}", workload.name(), side.name()))?;
                let runs =
                    table.iter_mut().find(|runs| (runs.workload, runs.side) == (workload, side));
                runs.context("every measured run has a row")?.runs.push(run);
            }
        }
    }
    tables::print(&table);
    servers.sort_by_key(|server| ServerSide::ALL.iter().position(|&side| side == server.side));
    servers.iter().try_for_each(tables::memory)
}

fn announce(options: &HttpBenchOptions, rows: usize) {
    let runs = u32::try_from(rows * options.repeats).unwrap_or(u32::MAX);
    // About half a second is needed to prepare the keys of a replay run.
    let time = (options.time() + options.warm_up() + Duration::from_millis(500)) * runs;
    println!(
        "{} connections, {} repeats of {} ms, all sides in turns; about {} s\n",
        options.connections,
        options.repeats,
        options.millis,
        time.as_secs() + 1
    );
}

/// Numbers of keys that were not sent yet.
struct UnusedKeys(Cell<u64>);

impl UnusedKeys {
    fn take(&self, count: u64) -> Range<u64> {
        let first = self.0.get();
        self.0.set(first + count);
        first..first + count
    }
}

/// A server that is being measured.
struct ServerBench<'a> {
    options: &'a HttpBenchOptions,
    server: &'a mut BenchServer,
    fresh: &'a UnusedKeys,
}

impl ServerBench<'_> {
    async fn measure(self, workload: HttpWorkload) -> Result<HttpRun> {
        let answer = self.server.side.answers(workload);
        match workload {
            HttpWorkload::UnKeyed => {
                self.timed(&order::without_key(), |_| iter::repeat(0), answer).await
            }
            HttpWorkload::FirstSeen => {
                let fresh = self.fresh;
                let keys = |_| iter::repeat_with(|| fresh.take(1).start);
                self.timed(&order::with_key(), keys, answer).await
            }
            HttpWorkload::Replay => {
                let request = order::with_key();
                let share = self.options.replayed / self.options.connections as u64;
                let first = self.fresh.take(self.options.replayed).start;
                let keys = |n| first + n * share..first + (n + 1) * share;
                let connections = &mut self.server.connections;
                // It ends with the keys, long before this time.
                let time = Duration::from_secs(30);
                http::run(connections, &request, keys, ExpectedAnswer::Handler, time).await?;
                self.timed(&request, |n| keys(n).cycle(), answer).await
            }
        }
    }

    /// Warms up, measures, and checks that the handler ran exactly when it should.
    async fn timed<K: Iterator<Item = u64>>(
        self,
        request: &LoadRequest,
        keys: impl Fn(u64) -> K,
        answer: ExpectedAnswer,
    ) -> Result<HttpRun> {
        let Self { options, server, .. } = self;
        let send = async |connections: &mut [LoadConnection], time| {
            http::run(connections, request, &keys, answer, time).await
        };
        send(&mut server.connections, options.warm_up()).await?;
        let (before, load_before, started) = (server.meter().await?, cpu(), Instant::now());
        let latency = send(&mut server.connections, options.time()).await?;
        let (time, load_cpu) = (started.elapsed(), cpu() - load_before);
        let spent = server.meter().await? - before;
        let runs = match answer {
            ExpectedAnswer::Handler => latency.len(),
            ExpectedAnswer::Recorded(_) => 0,
        };
        ensure!(spent.runs == runs, "the handler ran {} times, not {runs}", spent.runs);
        Ok(HttpRun::new(&latency, time, spent.cpu, load_cpu))
    }
}

impl HttpRun {
    fn new(latency: &Histogram<u64>, time: Duration, cpu: Duration, load_cpu: Duration) -> Self {
        let count = latency.len() as f64;
        let quantile = |q| latency.value_at_quantile(q) as f64 / 1e3;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count;
        Self {
            rate: count / time.as_secs_f64(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            cpu: each(cpu),
            load_cpu: each(load_cpu),
        }
    }
}
