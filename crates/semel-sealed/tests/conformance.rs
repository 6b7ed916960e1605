//! The layer changes no promise, over memory, a folder, PostgreSQL, Redis, NATS and the Arbiter.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;
#[path = "../../semel-store-postgres/tests/common/mod.rs"]
mod postgres;
#[path = "../../semel-store-redis/tests/common/mod.rs"]
mod redis;

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::{Arbiter, Cached, ManualClock, MemoryStore, Store};
use semel_sealed::Sealed;
use semel_servers::needed;
use semel_store_embedded::EmbeddedStore;
use semel_store_nats::NatsStore;
use semel_store_postgres::PostgresStore;
use semel_store_redis::{RedisFront, RedisStore};
use tempfile::TempDir;

use self::common::sealed;
use self::postgres::{Schema, clock::ServerClock};

/// A store to be compared with the protocol, the time it goes by, and what must outlive it.
struct Compared<S, T, H = ()>(S, T, H);

macro_rules! subject {
    ($name:ty, $tolerance:expr, $open:expr) => {
        impl Subject for $name {
            async fn open() -> Self {
                let (store, time, held) = $open;
                Self(store, time, held)
            }
            fn store(&self) -> &dyn Store {
                &self.0
            }
            fn time(&self) -> &dyn Time {
                &self.1
            }
            fn tolerance(&self) -> Duration {
                $tolerance
            }
        }
    };
}

fn memory() -> (Sealed<MemoryStore>, ManualClock) {
    let clock = ManualClock::new();
    (sealed(MemoryStore::builder().clock(clock.clone()).build().unwrap()), clock)
}

fn cached() -> (Cached<Sealed<MemoryStore>>, ManualClock) {
    let (store, clock) = memory();
    (Cached::builder(store).clock(clock.clone()).build(), clock)
}

fn folder() -> (Sealed<EmbeddedStore>, ManualClock, TempDir) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = EmbeddedStore::builder(folder.path().join("store")).clock(clock.clone());
    (sealed(store.open().unwrap()), clock, folder)
}

async fn on_postgres() -> (Sealed<PostgresStore>, ServerClock) {
    let (store, clock) = ServerClock::open(Schema::new()).await;
    (sealed(store), clock)
}

async fn on_redis() -> Sealed<RedisStore> {
    sealed(redis::at(&needed("SEMEL_TEST_REDIS_URL"), "sealed").connect().await.unwrap())
}

async fn on_nats() -> Sealed<NatsStore> {
    let url = format!("{}/semel-tests", needed("SEMEL_TEST_NATS_URL"));
    let prefix = format!("sealed-{:016x}", rand::random::<u64>());
    sealed(NatsStore::builder(&url).prefix(prefix).connect().await.unwrap())
}

/// Both stores see what is sealed.
async fn on_the_arbiter() -> (Sealed<Arbiter<RedisFront, PostgresStore>>, Schema) {
    let (schema, url) = (Schema::new(), needed("SEMEL_TEST_REDIS_URL"));
    let table = schema.store().await;
    let front = redis::at(&url, "sealed-front").connect_front(&table).await.unwrap();
    (sealed(Arbiter::new(front, table)), schema)
}

type InMemory = Compared<Sealed<MemoryStore>, ManualClock>;
type UnderACache = Compared<Cached<Sealed<MemoryStore>>, ManualClock>;
type InAFolder = Compared<Sealed<EmbeddedStore>, ManualClock, TempDir>;
type OnPostgres = Compared<Sealed<PostgresStore>, ServerClock>;
type OnRedis = Compared<Sealed<RedisStore>, RealTime>;
type OnNats = Compared<Sealed<NatsStore>, RealTime>;
type OnTheArbiter = Compared<Sealed<Arbiter<RedisFront, PostgresStore>>, RealTime, Schema>;

subject!(InMemory, Duration::ZERO, {
    let (store, clock) = memory();
    (store, clock, ())
});
subject!(UnderACache, Duration::ZERO, {
    let (store, clock) = cached();
    (store, clock, ())
});
subject!(InAFolder, Duration::ZERO, folder());
subject!(OnPostgres, Duration::ZERO, {
    let (store, clock) = on_postgres().await;
    (store, clock, ())
});
subject!(OnRedis, Duration::from_millis(50), (on_redis().await, RealTime::default(), ()));
// A takeover there takes 1.1 leases.
subject!(OnNats, Duration::from_millis(110), (on_nats().await, RealTime::default(), ()));
subject!(OnTheArbiter, Duration::from_millis(50), {
    let (store, schema) = on_the_arbiter().await;
    (store, RealTime::default(), schema)
});

mod in_memory {
    use super::*;

    semel_conformance::store_tests!(memory());

    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<InMemory>(300, 50);
    }
}

mod under_a_cache {
    use super::*;

    semel_conformance::store_tests!(cached());

    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<UnderACache>(300, 50);
    }
}

mod in_a_folder {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        let (store, clock, _folder) = folder();
        semel_conformance::store(&store, &clock).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<InAFolder>(30, 50);
    }
}

mod in_postgres {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        let (store, clock) = on_postgres().await;
        semel_conformance::store(&store, &clock).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<OnPostgres>(30, 40);
    }
}

mod in_redis {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        redis::keeps_every_promise(on_redis().await).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        redis::follows_the_protocol::<OnRedis>(4);
    }
}

/// Its promises are those of the plain store, which waits longer for each: here the protocol is enough.
#[test]
fn every_answer_follows_the_protocol_in_nats() {
    redis::follows_the_protocol::<OnNats>(2);
}

mod over_the_arbiter {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_promise_is_kept() {
        let (store, _schema) = on_the_arbiter().await;
        redis::keeps_every_promise(store).await;
    }

    #[test]
    fn every_answer_follows_the_protocol() {
        redis::follows_the_protocol::<OnTheArbiter>(2);
    }
}
