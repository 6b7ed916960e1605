//! The embedded store compared with a bare log: the same bytes, synced as often, and nothing else.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use semel_bench::{
    durable::{DurableLoad, RawLog, describe, fill, percent, read_all, replays as replays_key},
    report::{latency, line, nanoseconds, spread},
};
use semel_core::{ManualClock, Store};
use semel_store_embedded::{EmbeddedStore, EmbeddedStoreBuilder};

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct EmbeddedBenchOptions {
    /// Keys that exist before anything is measured.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 2000)]
    millis: u64,
    /// The folder to write to. Default: a temporary folder.
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
    /// Only run this many callers on the store, for a profile.
    #[arg(long, hide = true)]
    only: Option<usize>,
}

pub(crate) fn run(options: &EmbeddedBenchOptions) -> Result<()> {
    let folder = match &options.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    println!("{} keys, 300-byte outcomes, bare log and store in turns\n", options.keys);
    let clock = ManualClock::new();
    let path = folder.path().join("store");
    let builder = || EmbeddedStore::builder(&path).clock(clock.clone());
    let store = builder().open()?;
    if let Some(callers) = options.only {
        let load = DurableLoad { callers, time: Duration::from_millis(options.millis), first: 0 };
        describe(&format!("{callers} callers, store"), &mut [load.run(&store)?]);
        return Ok(());
    }
    let raw = RawLog::open(&folder.path().join("raw"))?;
    fill(&raw, options.keys)?;
    fill(&store, options.keys)?;
    drop(store);
    let store = reopen(&path, builder)?;
    let mut next = options.keys;
    for callers in [1, 64, 1024] {
        group_commit(&raw, &store, callers, &mut next, options)?;
    }
    replays(&store, options)?;
    purge(&raw, &store, &clock)
}

/// Claims and completions per second, both sides in turns.
fn group_commit(
    raw: &RawLog,
    store: &EmbeddedStore,
    callers: usize,
    next: &mut u64,
    options: &EmbeddedBenchOptions,
) -> Result<()> {
    let time = Duration::from_millis(options.millis);
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats {
        bare.push(DurableLoad { callers, time, first: *next }.run(raw)?);
        ours.push(DurableLoad { callers, time, first: *next }.run(store)?);
        *next += bare[bare.len() - 1].keys.max(ours[ours.len() - 1].keys);
    }
    let (ratio, low, high) = percent(&ours, &bare);
    describe(&format!("{callers} callers, bare log"), &mut bare);
    describe(&format!("{callers} callers, store"), &mut ours);
    let goal = callers > 1;
    let text = format!("{ratio:.0} % of the bare log ({low:.0}–{high:.0})");
    line("", &text, if goal { "≥ 90 %" } else { "" }, goal.then_some(ratio >= 90.0));
    Ok(())
}

/// Claims of completed keys, which read from the page cache at most.
fn replays(store: &EmbeddedStore, options: &EmbeddedBenchOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut histogram = nanoseconds();
    runtime.block_on(async {
        for _ in 0..200_000 {
            let i = rand::random_range(0..options.keys);
            let started = Instant::now();
            ensure!(replays_key(store, i).await?, "key {i} is not completed");
            histogram.record(u64::try_from(started.elapsed().as_nanos())?)?;
        }
        Ok(())
    })?;
    line("replay, one after the other", &latency(&histogram), "", None);
    Ok(())
}

fn purge(raw: &RawLog, store: &EmbeddedStore, clock: &ManualClock) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    clock.advance(Duration::from_secs(86_400));
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for n in 0..5 {
        let started = Instant::now();
        ensure!(runtime.block_on(raw.forget(n * 10_000..(n + 1) * 10_000))?);
        bare.push(started.elapsed().as_secs_f64() * 1e3);
        let started = Instant::now();
        let purged = runtime.block_on(store.purge(10_000))?;
        ours.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(purged.deleted == 10_000, "purged {purged:?}");
    }
    let ((bare, ..), (ours, low, high)) = (spread(&mut bare), spread(&mut ours));
    let text = format!("{ours:.2} ms ({low:.2}–{high:.2}), bare index {bare:.2} ms");
    line("purge of 10,000 expired", &text, "< 100 ms", Some(ours < 100.0));
    Ok(())
}

/// Opens the folder again, compared with reading its bytes.
fn reopen(path: &Path, builder: impl Fn() -> EmbeddedStoreBuilder) -> Result<EmbeddedStore> {
    let (mut reads, mut opens) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..3 {
        let started = Instant::now();
        bytes = read_all(path)?;
        reads.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        drop(builder().open()?);
        opens.push(started.elapsed().as_secs_f64());
    }
    let ((read, ..), (open, low, high)) = (spread(&mut reads), spread(&mut opens));
    let read = format!("{read:.2} s, {} MB", bytes >> 20);
    line("reading the folder with a checksum", &read, "", None);
    line("reopening it", &format!("{open:.2} s ({low:.2}–{high:.2})"), "< 1 s", Some(open < 1.0));
    Ok(builder().open()?)
}
