//! Checks whether upstreams can be reached: makes a connection to each and closes it.

use std::{io, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tracing::warn;

use super::proxy::ConnectionPool;

/// Time for a connection, unless `timeouts.connect` is shorter.
const LIMIT: Duration = Duration::from_secs(1);

/// Logs every upstream that cannot be reached. The gateway does so at the start: a mistake in a URL should show before
/// the first request.
pub(super) async fn warn_of_unreachable(pools: Arc<[Arc<ConnectionPool>]>) {
    for (pool, error) in unreachable(&pools).await {
        let (upstream, address) = (pool.name(), pool.address());
        warn!(upstream, address, %error, "upstream cannot be reached; its requests get 502 until it can");
    }
}

/// The first upstream that cannot be reached.
pub(super) async fn first_unreachable(pools: &[Arc<ConnectionPool>]) -> Option<&ConnectionPool> {
    unreachable(pools).await.into_iter().next().map(|(pool, _)| pool)
}

async fn unreachable(pools: &[Arc<ConnectionPool>]) -> Vec<(&ConnectionPool, io::Error)> {
    let attempts = pools.iter().map(|pool| async { (&**pool, pool.probe(LIMIT).await) });
    let results = join_all(attempts).await.into_iter();
    results.filter_map(|(pool, reached)| reached.err().map(|error| (pool, error))).collect()
}
