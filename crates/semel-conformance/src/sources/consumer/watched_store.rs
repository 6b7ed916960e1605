//! The store of one process: writes recorded outcomes to the journal.

use async_trait::async_trait;
use semel_core::{Body, CompleteRequest, Completion, Result, Stats, Store, StoreInfo};

use super::{Step, handler::Identity};

/// A store that all processes share, as one process has it.
#[derive(Debug)]
pub(super) struct WatchedStore<S> {
    pub(super) store: S,
    pub(super) process: Identity,
}

impl<S> WatchedStore<S> {
    fn completed(&self, request: &CompleteRequest, reply: &Result<Completion>) {
        if !matches!(reply, Ok(Completion::Recorded)) {
            return;
        }
        let id = match (request.outcome.as_failure(), request.outcome.body()) {
            (None, Body::Kept(id)) => std::str::from_utf8(id).ok().map(Into::into),
            // The letter was published before.
            (Some(_), _) => self.process.journal.event(&request.owner.key),
            (None, Body::Omitted { .. }) => None,
        };
        let id = id.unwrap_or_else(|| "an event that the suite did not publish".into());
        self.process.write(&id, Step::Recorded);
    }
}

macro_rules! watched_store {
    ($($name:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl<S: Store> Store for WatchedStore<S> {
            fn info(&self) -> StoreInfo {
                // As a store on a server is: other processes use it.
                StoreInfo { shared: true, ..self.store.info() }
            }
            $(async fn $name(&self, request: $request) -> $answer {
                let answer = self.store.$name(request).await;
                watched_store!(@ $name, self, request, answer);
                answer
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
    (@ complete, $store:expr, $request:expr, $answer:expr) => {
        $store.completed($request, &$answer);
    };
    (@ complete_many, $store:expr, $request:expr, $answer:expr) => {
        for (request, answer) in $request.iter().zip(&$answer) {
            $store.completed(request, answer);
        }
    };
    (@ $other:ident, $store:expr, $request:expr, $answer:expr) => {};
}

semel_core::__store_steps!(watched_store);
