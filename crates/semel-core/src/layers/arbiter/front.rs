//! Calls to the front: each has a short timeout, and none is made while the front's circuit breaker is open.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Replica, ReplicaCache};
use crate::{
    KeyHash, Result, background,
    layers::circuit_breaker::{CircuitBreaker, store_replied},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    telemetry::{FrontRead, FrontWrite, count_front_reads, count_front_writes},
};

/// Longer reads are not worth the wait, since the authority is as quick.
const PATIENCE: Duration = Duration::from_millis(250);
/// The most writes under way. A replica that is not written is written at its next replay.
const MAX_WRITES: usize = 1024;

#[derive(Debug)]
pub(super) struct FrontClient<F> {
    cache: Arc<F>,
    circuit: Arc<CircuitBreaker>,
    writes: Arc<AtomicUsize>,
}

impl<F: ReplicaCache> FrontClient<F> {
    pub(super) fn new(cache: F) -> Self {
        let cache = Arc::new(cache);
        let probed = cache.clone();
        let circuit = CircuitBreaker::new(cache.name(), move |_| {
            let cache = probed.clone();
            Box::pin(async move {
                let absent = KeyHash::from_bytes([0; 32]);
                let call = Box::pin(async move { cache.look(&[absent]).await });
                let reply = background::timeout_without_cancel(PATIENCE, call, drop).await;
                reply.is_some_and(|replies| replies.iter().all(store_replied))
            })
        });
        Self { cache, circuit, writes: Arc::default() }
    }

    pub(super) fn cache(&self) -> &F {
        &self.cache
    }

    /// The replicas of these keys; `None` where there is none, or the front does not reply.
    pub(super) async fn read(&self, keys: Vec<KeyHash>) -> Vec<Option<Replica>> {
        let count = keys.len();
        if self.circuit.is_open() {
            count_front_reads(FrontRead::Skipped, count);
            return vec![None; count];
        }
        let cache = self.cache.clone();
        let call = Box::pin(async move { cache.look(&keys).await });
        let Some(replies) = background::timeout_without_cancel(PATIENCE, call, drop).await else {
            self.circuit.count(false);
            count_front_reads(FrontRead::Failed, count);
            return vec![None; count];
        };
        self.circuit.count(replies.iter().all(store_replied));
        replies.into_iter().map(count_read).collect()
    }

    /// Writes replicas, without waiting for the reply. `called_at` is when the authority was called.
    pub(super) async fn write(&self, replicas: Vec<Replica>, called_at: Instant) {
        if replicas.is_empty() || self.circuit.is_open() {
            return;
        }
        let Some(permit) = WritePermit::acquire(&self.writes) else {
            return count_front_writes(FrontWrite::Dropped, replicas.len());
        };
        let (cache, circuit) = (self.cache.clone(), self.circuit.clone());
        let write = Box::pin(async move {
            let replies = cache.put(&replicas, called_at).await;
            drop(permit);
            circuit.count(replies.iter().all(store_replied));
            let failed = replies.iter().filter(|reply| reply.is_err()).count();
            count_front_writes(FrontWrite::Failed, failed);
            count_front_writes(FrontWrite::Done, replies.len() - failed);
        });
        background::poll_then_spawn(write).await;
    }

    /// True if the front replies that it has a replica. Called even while the circuit is open, like `remove`.
    pub(super) async fn has(&self, key: &KeyHash) -> bool {
        matches!(self.cache.look(&[*key]).await.as_slice(), [Ok(Some(_))])
    }

    /// Called even while the circuit is open: an operator waits for the result.
    pub(super) async fn remove(&self, key: &KeyHash) -> Result<bool> {
        self.cache.remove(key).await
    }
}

fn count_read(reply: Result<Option<Replica>>) -> Option<Replica> {
    match reply {
        Ok(replica) => {
            count_front_reads(
                if replica.is_some() { FrontRead::Found } else { FrontRead::Missed },
                1,
            );
            replica
        }
        Err(error) => {
            tracing::debug!(%error, "the front failed");
            count_front_reads(FrontRead::Failed, 1);
            None
        }
    }
}

/// One of the writes under way.
struct WritePermit(Arc<AtomicUsize>);

impl WritePermit {
    fn acquire(writes: &Arc<AtomicUsize>) -> Option<Self> {
        let permit = Self(writes.clone());
        (writes.fetch_add(1, SeqCst) < MAX_WRITES).then_some(permit)
    }
}

impl Drop for WritePermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
