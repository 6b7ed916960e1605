//! A store that fails on demand, for suites in the test's own process.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use async_trait::async_trait;
use semel_core::{Error, ErrorKind, Result, Stats, Store, StoreInfo};

/// Makes a [`Breakable`] store fail, and work again. Clones share one switch.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// If true, every call to the store fails from now on.
    pub fn set(&self, broken: bool) {
        self.0.store(broken, SeqCst);
    }

    /// True while every call fails.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// A store that fails while its switch is set.
#[derive(Debug)]
pub struct Breakable<S> {
    store: S,
    broken: Switch,
}

impl<S> Breakable<S> {
    /// Puts a switch on a store.
    pub const fn new(store: S, broken: Switch) -> Self {
        Self { store, broken }
    }

    fn up(&self) -> Result<()> {
        match self.broken.is_set() {
            true => Err(Error::new(ErrorKind::Unavailable, "the suite broke the store")),
            false => Ok(()),
        }
    }
}

/// The failed reply to one step, or to every step of a batch.
trait FailedReply<T> {
    fn failed(error: Error, request: &T) -> Self;
}

impl<A, T> FailedReply<T> for Result<A> {
    fn failed(error: Error, _: &T) -> Self {
        Err(error)
    }
}

impl<A, T> FailedReply<&[T]> for Vec<Result<A>> {
    fn failed(error: Error, requests: &&[T]) -> Self {
        let again = |_| Err(Error::new(error.kind(), "the suite broke the store"));
        requests.iter().map(again).collect()
    }
}

macro_rules! breakable {
    ($($name:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl<S: Store> Store for Breakable<S> {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $name(&self, request: $request) -> $answer {
                match self.up() {
                    Ok(()) => self.store.$name(request).await,
                    Err(error) => FailedReply::failed(error, &request),
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}

semel_core::__store_steps!(breakable);
