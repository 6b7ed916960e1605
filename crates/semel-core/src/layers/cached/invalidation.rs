//! Invalidation: removes a cached outcome when an operator changes its key, in this process or in another one.

use super::{Cached, OutcomeCache};
use crate::{ChangeObserver, KeyHash, Store};

/// Changes that other processes made, as the change feed reports them.
impl ChangeObserver for OutcomeCache {
    fn changed(&self, key: Option<&KeyHash>) {
        match key {
            Some(key) => self.invalidate(key),
            None => self.invalidate_all(),
        }
    }
}

impl<S: Store> Cached<S> {
    /// Invalidates a key before a step of this process that may change it, and once more after: a concurrent claim may
    /// have cached the outcome from before.
    pub(super) async fn invalidate_around<T>(
        &self,
        key: &KeyHash,
        step: impl Future<Output = T>,
    ) -> T {
        self.cache.invalidate(key);
        let reply = step.await;
        self.cache.invalidate(key);
        reply
    }
}
