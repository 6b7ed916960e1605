//! A front that may be connected late: what only saves time must not keep a process from starting.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use semel_core::{Error, ErrorKind, Heard, Hints, KeyHash, Result, Shelf, Shelved, background};
use tokio::{task::AbortHandle, time::sleep};

use crate::{RedisStore, RedisStoreBuilder, error::unavailable};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A Redis as the front of an [`Arbiter`](semel_core::Arbiter). It connects when the server is there.
#[derive(Debug)]
pub struct RedisFront {
    place: Arc<Place>,
    opening: Option<AbortHandle>,
}

#[derive(Debug, Default)]
struct Place {
    store: OnceLock<RedisStore>,
    hints: Hints,
}

impl RedisStoreBuilder {
    /// Connects as a front: at once, or later if the server does not answer now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] as [`RedisStoreBuilder::connect`]. A server that is found wrong later is only
    /// logged, and not used.
    pub async fn connect_front(self) -> Result<RedisFront> {
        let place = Arc::<Place>::default();
        let opening = match self.clone().connect().await {
            Ok(store) => {
                place.fill(store);
                None
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, "redis: the front is not there; it is used once it is");
                Some(background().spawn(open(self, place.clone())).abort_handle())
            }
            Err(error) => return Err(error),
        };
        Ok(RedisFront { place, opening })
    }
}

async fn open(builder: RedisStoreBuilder, place: Arc<Place>) {
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        match builder.clone().connect().await {
            Ok(store) => {
                tracing::info!("redis: the front is there");
                return place.fill(store);
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => tracing::error!(%error, "redis: the front cannot be used"),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Place {
    /// From now on its news is ours; what it told before may have been about any key.
    fn fill(self: &Arc<Self>, store: RedisStore) {
        let own: Arc<dyn Heard> = self.clone();
        if let Some(news) = store.hints() {
            news.overhear(Arc::downgrade(&own));
        }
        let _ = self.store.set(store);
        self.hints.tell_all();
    }
}

impl Heard for Place {
    fn heard(&self, key: Option<&KeyHash>) {
        match key {
            Some(key) => self.hints.tell(key),
            None => self.hints.tell_all(),
        }
    }
}

impl RedisFront {
    fn store(&self) -> Result<&RedisStore> {
        self.place.store.get().ok_or_else(not_there)
    }
}

impl Drop for RedisFront {
    fn drop(&mut self) {
        if let Some(opening) = &self.opening {
            opening.abort();
        }
    }
}

#[async_trait]
impl Shelf for RedisFront {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn hints(&self) -> Option<Hints> {
        Some(self.place.hints.clone())
    }

    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Shelved>>> {
        match self.store() {
            Ok(store) => store.look(keys).await,
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn put(&self, copies: &[Shelved], asked: Instant) -> Vec<Result<()>> {
        match self.store() {
            Ok(store) => store.put(copies, asked).await,
            Err(error) => copies.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        self.store()?.remove(key).await
    }
}

fn not_there() -> Error {
    unavailable("redis: the front is not connected; see that its server runs")
}
