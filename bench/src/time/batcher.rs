//! The auto-batcher compared with the usual way: a channel, and a oneshot per call.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures_util::future::join_all;
use semel_bench::report::{line, spread};
use semel_remote::batch::{BatchLimits, Batcher};
use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot},
};

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct BatcherBenchOptions {
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 1000)]
    millis: u64,
}

/// The simulated round trip of the worker.
const TRIPS: [(&str, Duration); 2] =
    [("no trip", Duration::ZERO), ("trip of 100 µs", Duration::from_micros(100))];

pub(crate) fn run(options: &BatcherBenchOptions) -> Result<()> {
    println!("calls per second through a worker thread, both sides in turns\n");
    let time = Duration::from_millis(options.millis);
    for (what, trip) in TRIPS {
        for callers in [1, 64, 1024] {
            let (mut channel, mut batcher) = (Vec::new(), Vec::new());
            for _ in 0..options.repeats {
                channel.push(through_channel(callers, time, trip)?);
                batcher.push(through_batcher(callers, time, trip)?);
            }
            let mut ratios: Vec<f64> = batcher.iter().zip(&channel).map(|(b, c)| b / c).collect();
            let ((channel, ..), (batcher, ..)) = (spread(&mut channel), spread(&mut batcher));
            let (ratio, low, high) = spread(&mut ratios);
            let text = format!(
                "{:.0}K/s, channel {:.0}K/s: {ratio:.2}x ({low:.2}–{high:.2})",
                batcher / 1e3,
                channel / 1e3
            );
            line(&format!("{callers} callers, {what}"), &text, "", None);
        }
    }
    Ok(())
}

fn wait(trip: Duration) {
    if !trip.is_zero() {
        thread::sleep(trip);
    }
}

fn through_batcher(callers: usize, time: Duration, trip: Duration) -> Result<f64> {
    let (batcher, mut batches) = Batcher::<u64, u64>::new(BatchLimits::default());
    let worker = thread::spawn(move || {
        while let Some(batch) = batches.take_blocking() {
            wait(trip);
            batch.reply.send(batch.calls);
        }
    });
    let rate = load(callers, time, async |n| batcher.call(n).await.is_ok())?;
    drop(batcher);
    worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
    Ok(rate)
}

fn through_channel(callers: usize, time: Duration, trip: Duration) -> Result<f64> {
    let (send, mut receive) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(65_536);
    let worker = thread::spawn(move || {
        let mut batch = Vec::new();
        while receive.blocking_recv_many(&mut batch, 4096) > 0 {
            wait(trip);
            for (n, reply) in batch.drain(..) {
                let _ = reply.send(n);
            }
        }
    });
    let rate = load(callers, time, async |n| {
        let (reply, result) = oneshot::channel();
        send.send((n, reply)).await.is_ok() && result.await.is_ok()
    })?;
    drop(send);
    worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
    Ok(rate)
}

/// Calls per second of concurrent callers, each of which makes one call after the other.
fn load(callers: usize, time: Duration, call: impl AsyncFn(u64) -> bool) -> Result<f64> {
    let runtime = Builder::new_current_thread().build()?;
    let started = Instant::now();
    let caller = || async {
        let mut done = 0;
        while started.elapsed() < time && call(done).await {
            done += 1;
        }
        done
    };
    let done = runtime.block_on(join_all((0..callers).map(|_| caller())));
    Ok(done.iter().sum::<u64>() as f64 / started.elapsed().as_secs_f64())
}
