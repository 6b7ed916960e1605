//! Opens stores by name. A new store is one line in [`open`] and one in [`KNOWN`].

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use semel_core::{Arbiter, MemoryStore, Store};
use semel_store_embedded::EmbeddedStore;
use semel_store_nats::NatsStore;
use semel_store_postgres::PostgresStore;
use semel_store_redis::{RedisFront, RedisStore};
use tokio::time::sleep;

use crate::{
    check::{CheckRules, Floor},
    plain_store::{Acknowledge, PlainStore},
};

/// The stores that [`open`] knows.
pub const KNOWN: &str = "memory:, file:PATH, plain:PATH, careless:PATH, postgres://ADDRESS, redis://ADDRESS, \
     nats://ADDRESS/BUCKET, arbiter:postgres://ADDRESS|redis://ADDRESS";

/// How long a call to a server may take: a few leases.
const CALL_TIMEOUT: Duration = Duration::from_millis(400);

/// Opens the store that `spec` names.
///
/// # Errors
///
/// When there is no such store, or it does not open.
pub async fn open(spec: &str) -> Result<Arc<dyn Store>> {
    let (scheme, rest) = spec.split_once(':').unwrap_or((spec, ""));
    Ok(match scheme {
        "memory" => Arc::new(MemoryStore::new()),
        "file" => Arc::new(EmbeddedStore::open(rest).with_context(|| format!("open {rest}"))?),
        "plain" => Arc::new(plain(rest, Acknowledge::Written)?),
        "careless" => Arc::new(plain(rest, Acknowledge::Early)?),
        "postgres" => Arc::new(postgres(spec).await?),
        "redis" => Arc::new(redis(spec).await?),
        "nats" => Arc::new(nats(spec).await?),
        "arbiter" => Arc::new(arbiter(rest).await?),
        _ => bail!("no store `{spec}`; there are {KNOWN}"),
    })
}

/// Opens the store as [`open`] does, and tries again while its server may be down.
///
/// # Errors
///
/// When it still does not open after half a minute.
pub async fn open_patiently(spec: &str) -> Result<Arc<dyn Store>> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match open(spec).await {
            Err(_) if is_served(spec) && Instant::now() < deadline => {
                sleep(Duration::from_millis(50)).await;
            }
            opened => return opened,
        }
    }
}

/// True when the store needs a server.
fn is_served(spec: &str) -> bool {
    ["postgres:", "redis:", "nats:", "arbiter:"].iter().any(|scheme| spec.starts_with(scheme))
}

/// The rules that the checker applies to a run over this store.
#[must_use]
pub fn rules_of(spec: &str, floor: Floor) -> CheckRules {
    // One process at a time has these stores open: opening proves that earlier owners are gone, so no claim has
    // to wait for their leases.
    let locked = ["memory:", "plain:", "careless:", "file:"];
    CheckRules {
        frees_at_open: locked.iter().any(|scheme| spec.starts_with(scheme)),
        has_front: spec.starts_with("arbiter:"),
        expires_by_estimate: spec.starts_with("nats"),
        floor,
    }
}

async fn postgres(url: &str) -> Result<PostgresStore> {
    let builder = PostgresStore::builder(url).migrate(true).call_timeout(CALL_TIMEOUT);
    builder.connect().await.context("connect to PostgreSQL")
}

async fn redis(url: &str) -> Result<RedisStore> {
    let builder = RedisStore::builder(url).call_timeout(CALL_TIMEOUT);
    builder.connect().await.context("connect to Redis")
}

async fn nats(url: &str) -> Result<NatsStore> {
    let builder = NatsStore::builder(url).call_timeout(CALL_TIMEOUT);
    builder.connect().await.context("connect to NATS")
}

async fn arbiter(urls: &str) -> Result<Arbiter<RedisFront, PostgresStore>> {
    let (authority, front) = urls.split_once('|').context("an arbiter needs two stores, A|B")?;
    let builder = RedisStore::builder(front).call_timeout(CALL_TIMEOUT);
    let authority = postgres(authority).await?;
    let front = builder.connect_front(&authority).await.context("connect to the front")?;
    Ok(Arbiter::new(front, authority))
}

fn plain(path: &str, acknowledge: Acknowledge) -> Result<PlainStore> {
    PlainStore::open(Path::new(path), acknowledge).with_context(|| format!("open {path}"))
}
