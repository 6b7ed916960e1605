//! The front, as far as it answers: nobody waits long for it, and nobody at all while it is gone.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Replica, ReplicaCache};
use crate::{
    KeyHash, Result, background,
    layers::circuit_breaker::{CircuitBreaker, is_answer},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    telemetry::{FrontRead, FrontWrite, count_front_reads, count_front_writes},
};

/// A front that takes longer is asked in vain: the authority is as quick.
const PATIENCE: Duration = Duration::from_millis(250);
/// Puts under way at most. What does not fit comes with the next replay.
const PUTS: usize = 1024;

#[derive(Debug)]
pub(super) struct Front<F> {
    cache: Arc<F>,
    circuit: Arc<CircuitBreaker>,
    puts: Arc<AtomicUsize>,
}

impl<F: ReplicaCache> Front<F> {
    pub(super) fn new(cache: F) -> Self {
        let cache = Arc::new(cache);
        let probed = cache.clone();
        let circuit = CircuitBreaker::new(cache.name(), move |_| {
            let cache = probed.clone();
            Box::pin(async move {
                let nobody = KeyHash::from_bytes([0; 32]);
                let call = Box::pin(async move { cache.look(&[nobody]).await });
                let answer = background::timeout_without_cancel(PATIENCE, call, drop).await;
                answer.is_some_and(|answers| answers.iter().all(is_answer))
            })
        });
        Self { cache, circuit, puts: Arc::default() }
    }

    pub(super) fn cache(&self) -> &F {
        &self.cache
    }

    /// The copies of these keys, as far as they are there and the front answers.
    pub(super) async fn look(&self, keys: Vec<KeyHash>) -> Vec<Option<Replica>> {
        let count = keys.len();
        if self.circuit.is_open() {
            count_front_reads(FrontRead::Skipped, count);
            return vec![None; count];
        }
        let cache = self.cache.clone();
        let call = Box::pin(async move { cache.look(&keys).await });
        let Some(answers) = background::timeout_without_cancel(PATIENCE, call, drop).await else {
            self.circuit.count(false);
            count_front_reads(FrontRead::Failed, count);
            return vec![None; count];
        };
        self.circuit.count(answers.iter().all(is_answer));
        answers.into_iter().map(found).collect()
    }

    /// Puts copies without waiting for it.
    pub(super) async fn put(&self, copies: Vec<Replica>, asked: Instant) {
        if copies.is_empty() || self.circuit.is_open() {
            return;
        }
        let Some(place) = Place::take(&self.puts) else {
            return count_front_writes(FrontWrite::Dropped, copies.len());
        };
        let (cache, circuit) = (self.cache.clone(), self.circuit.clone());
        let put = Box::pin(async move {
            let answers = cache.put(&copies, asked).await;
            drop(place);
            circuit.count(answers.iter().all(is_answer));
            let failed = answers.iter().filter(|answer| answer.is_err()).count();
            count_front_writes(FrontWrite::Failed, failed);
            count_front_writes(FrontWrite::Done, answers.len() - failed);
        });
        background::poll_then_spawn(put).await;
    }

    /// Whether there is a copy; not, as long as the front does not say so. Asked in any case, as a removal is.
    pub(super) async fn has(&self, key: &KeyHash) -> bool {
        matches!(self.cache.look(&[*key]).await.as_slice(), [Ok(Some(_))])
    }

    /// Asked in any case: an operator wants to know.
    pub(super) async fn remove(&self, key: &KeyHash) -> Result<bool> {
        self.cache.remove(key).await
    }
}

fn found(answer: Result<Option<Replica>>) -> Option<Replica> {
    match answer {
        Ok(copy) => {
            count_front_reads(if copy.is_some() { FrontRead::Found } else { FrontRead::Missed }, 1);
            copy
        }
        Err(error) => {
            tracing::debug!(%error, "the front failed");
            count_front_reads(FrontRead::Failed, 1);
            None
        }
    }
}

/// One of the puts under way.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(puts: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(puts.clone());
        (puts.fetch_add(1, SeqCst) < PUTS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
