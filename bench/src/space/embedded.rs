//! Memory and disk space of the embedded store. Its writer allocates in a thread of its own, so the memory of the whole
//! process is measured.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc};

use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use semel_bench::{
    load::{BODY, request},
    report::line,
};
use semel_core::{Claim, CompleteRequest, LabelPolicy, Outcome, Store};
use semel_store_embedded::EmbeddedStore;

pub(crate) fn run(keys: u64, folder: Option<PathBuf>) -> Result<()> {
    let folder = match folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let store = EmbeddedStore::open(folder.path())?;
    let before = resident()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(fill(&store, keys))?;
    let memory = (resident()? - before) as f64 / keys as f64;
    line("memory per record", &format!("{memory:.0} B"), "", None);
    drop(store);
    let mut disk = 0;
    for entry in fs::read_dir(folder.path())? {
        disk += entry?.metadata()?.blocks() * 512;
    }
    let disk = disk as f64 / keys as f64;
    line("disk per record", &format!("{disk:.0} B, of which 300 B outcome"), "", None);
    Ok(())
}

async fn fill(store: &EmbeddedStore, keys: u64) -> Result<()> {
    let (mut first, at_once) = (0, 4096);
    while first < keys {
        let end = keys.min(first + at_once);
        let one = |i| async move {
            let Claim::Granted(lease) = store.claim(&request(i, LabelPolicy::Keep)).await? else {
                anyhow::bail!("key {i} is not free");
            };
            let outcome = Arc::new(Outcome::success(BODY.to_vec()));
            store.complete(&CompleteRequest { owner: lease.owner, outcome }).await?;
            Ok(())
        };
        let done = join_all((first..end).map(one)).await;
        ensure!(done.iter().all(Result::is_ok), "{done:?}");
        first = end;
    }
    Ok(())
}

/// The anonymous resident memory of this process in bytes.
fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)).context("no RssAnon")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}
