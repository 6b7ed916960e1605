//! The operations that are measured: claim and completion of a key.

use std::sync::Arc;

use crate::load::{BODY, request};
use anyhow::{Result, bail};
use semel_core::{Claim, CompleteRequest, LabelPolicy, Outcome, Owner, Store};
use semel_store_embedded::EmbeddedStore;

/// One side of the comparison.
pub trait DurableSide {
    /// The result of a claim, which its completion needs.
    type Owned;
    /// Claims key number `i`.
    fn claim(&self, i: u64) -> impl Future<Output = Result<Self::Owned>>;
    /// Records the outcome of key number `i`.
    fn complete(&self, i: u64, owned: Self::Owned) -> impl Future<Output = Result<()>>;
}

impl DurableSide for EmbeddedStore {
    type Owned = Owner;

    async fn claim(&self, i: u64) -> Result<Owner> {
        match Store::claim(self, &request(i, LabelPolicy::Redact)).await? {
            Claim::Granted(lease) => Ok(lease.owner),
            answer => bail!("key {i} is not free: {answer:?}"),
        }
    }

    async fn complete(&self, _: u64, owner: Owner) -> Result<()> {
        let outcome = Arc::new(Outcome::success(BODY.to_vec()));
        Store::complete(self, &CompleteRequest { owner, outcome }).await?;
        Ok(())
    }
}

/// True when claiming key number `i` replays its outcome.
///
/// # Errors
///
/// The error of the store.
pub async fn replays(store: &EmbeddedStore, i: u64) -> Result<bool> {
    let answer = Store::claim(store, &request(i, LabelPolicy::Redact)).await?;
    Ok(matches!(answer, Claim::Replay(_)))
}

/// Claims and completes the keys from zero on, many at a time.
///
/// # Errors
///
/// The error of the side.
pub fn fill(side: &impl DurableSide, keys: u64) -> Result<()> {
    const AT_ONCE: u64 = 4096;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut first = 0;
        while first < keys {
            let end = keys.min(first + AT_ONCE);
            let both = (first..end).map(|i| async move {
                let owned = side.claim(i).await?;
                side.complete(i, owned).await
            });
            futures_util::future::try_join_all(both).await?;
            first = end;
        }
        Ok(())
    })
}
