//! The embedded store beside a bare log: the same bytes, synced as often, and nothing else.

mod callers;
mod raw;
mod side;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use semel_bench::report::{latency, line, spread};
use semel_core::{ManualClock, Store};
use semel_store_embedded::EmbeddedStore;

use self::{callers::Load, raw::RawLog, side::fill};

/// How much to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Keys that are there before anything is measured.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 2000)]
    millis: u64,
    /// Where to write; a temporary folder if not given.
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = match &options.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    println!("{} keys, 300-byte outcomes, bare log and store in turns\n", options.keys);
    let clock = ManualClock::new();
    let path = folder.path().join("store");
    let builder = || EmbeddedStore::builder(&path).clock(clock.clone());
    let store = builder().open()?;
    let raw = RawLog::open(&folder.path().join("raw"))?;
    fill(&raw, options.keys)?;
    fill(&store, options.keys)?;
    let mut next = options.keys;
    for callers in [1, 64, 1024] {
        group_commit(&raw, &store, callers, &mut next, options)?;
    }
    replays(&store, options)?;
    purge(&store, &clock)?;
    let records =
        futures_util::FutureExt::now_or_never(store.stats()).expect("from memory")?.records;
    drop((raw, store));
    reopen(&path, builder, records)
}

/// Claims and completions per second, both sides in turns.
fn group_commit(
    raw: &RawLog,
    store: &EmbeddedStore,
    callers: usize,
    next: &mut u64,
    options: &Options,
) -> Result<()> {
    let time = Duration::from_millis(options.millis);
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats {
        bare.push(Load { callers, time, first: *next }.run(raw)?);
        ours.push(Load { callers, time, first: *next }.run(store)?);
        *next += bare[bare.len() - 1].keys.max(ours[ours.len() - 1].keys);
    }
    let mut ratios: Vec<f64> = ours.iter().zip(&bare).map(|(o, b)| o.rate / b.rate).collect();
    let (ratio, low, high) = spread(&mut ratios);
    let describe = |what: &str, runs: &mut Vec<callers::Done>| {
        runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let (low, mid, high) = (&runs[0], &runs[runs.len() / 2], &runs[runs.len() - 1]);
        let thousands = |done: &callers::Done| format!("{:.1}K", done.rate / 1e3);
        let rates = format!("{}/s ({}–{})", thousands(mid), thousands(low), thousands(high));
        let text = format!("{rates}, {}, CPU {:.1} µs", latency(&mid.latency), mid.cpu);
        line(&format!("{callers} callers, {what}"), &text, "", None);
    };
    describe("bare log", &mut bare);
    describe("store", &mut ours);
    let goal = callers > 1;
    let text = format!("{:.0} % of the bare log ({:.0}–{:.0})", ratio * 1e2, low * 1e2, high * 1e2);
    line("", &text, if goal { "≥ 90 %" } else { "" }, goal.then_some(ratio >= 0.9));
    Ok(())
}

/// Claims of completed keys, which touch no disk but its cache.
fn replays(store: &EmbeddedStore, options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut histogram = semel_bench::report::nanoseconds();
    runtime.block_on(async {
        for _ in 0..200_000 {
            let i = rand::random_range(0..options.keys);
            let started = Instant::now();
            ensure!(side::replays(store, i).await?, "key {i} is not completed");
            histogram.record(u64::try_from(started.elapsed().as_nanos())?)?;
        }
        Ok(())
    })?;
    line("replay, one after the other", &latency(&histogram), "", None);
    Ok(())
}

fn purge(store: &EmbeddedStore, clock: &ManualClock) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    clock.advance(Duration::from_secs(86_400));
    // What is measured next must not expire with it.
    let mut times = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let purged = runtime.block_on(store.purge(10_000))?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(purged.deleted == 10_000, "purged {purged:?}");
    }
    let (mid, low, high) = spread(&mut times);
    let text = format!("{mid:.2} ms ({low:.2}–{high:.2})");
    line("purge of 10,000 expired", &text, "< 100 ms", Some(mid < 100.0));
    Ok(())
}

/// Opens the folder again, beside reading its bytes.
fn reopen(
    path: &Path,
    builder: impl Fn() -> semel_store_embedded::EmbeddedStoreBuilder,
    records: u64,
) -> Result<()> {
    let (mut reads, mut opens) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..3 {
        let started = Instant::now();
        bytes = raw::read_all(path)?;
        reads.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        let store = builder().open()?;
        opens.push(started.elapsed().as_secs_f64());
        drop(store);
    }
    let ((read, ..), (open, low, high)) = (spread(&mut reads), spread(&mut opens));
    let size = format!("{records} records, {} MB", bytes >> 20);
    line("reading the folder with a checksum", &format!("{read:.2} s, {size}"), "", None);
    line("reopening it", &format!("{open:.2} s ({low:.2}–{high:.2})"), "< 1 s", Some(open < 1.0));
    Ok(())
}
