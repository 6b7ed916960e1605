//! The PostgreSQL store passes the conformance suite, plain and under a cache.

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::{Cached, Store};
use semel_store_postgres::PostgresStore;

use crate::common::{Database, Schema, TimeWithGuard, clock::ServerClock};

async fn plain() -> (PostgresStore, TimeWithGuard<RealTime, Schema>) {
    let schema = Schema::new();
    (schema.store().await, TimeWithGuard::real(schema))
}

async fn cached() -> (Cached<PostgresStore>, TimeWithGuard<RealTime, Schema>) {
    let (store, time) = plain().await;
    (Cached::new(store, 1000), time)
}

mod on_a_server_whose_clock_is_set {
    use super::*;

    semel_conformance::store_tests!(ServerClock::open(Schema::new()).await);
}

mod under_a_cache {
    semel_conformance::store_tests!(super::cached().await);
}

/// Without a cache, on a server clock that only the test moves: no sequence waits, and times are compared to the
/// millisecond.
struct PgOnManualClock(PostgresStore, ServerClock);

impl Subject for PgOnManualClock {
    async fn open() -> Self {
        let (store, clock) = ServerClock::open(Schema::new()).await;
        Self(store, clock)
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
}

macro_rules! subject {
    ($name:ident, $store:ty, $open:ident) => {
        struct $name($store, TimeWithGuard<RealTime, Schema>);

        impl Subject for $name {
            async fn open() -> Self {
                let (store, time) = $open().await;
                Self(store, time)
            }
            fn store(&self) -> &dyn Store {
                &self.0
            }
            fn time(&self) -> &dyn Time {
                &self.1
            }
            fn tolerance(&self) -> Duration {
                Duration::from_millis(100)
            }
        }
    };
}

subject!(PlainPg, PostgresStore, plain);
subject!(CachedPg, Cached<PostgresStore>, cached);

#[tokio::test]
async fn schema_and_table_may_have_other_names() {
    let database = Database::new().await;
    let schema = Schema { url: database.url(), name: "system".to_owned() };
    let (store, time) = ServerClock::open(schema).await;
    semel_conformance::store(&store, &time).await;
}

#[test]
fn every_reply_follows_the_protocol() {
    state_machine::<PgOnManualClock>(100, 40);
}

#[test]
fn every_reply_follows_the_protocol_in_real_time() {
    state_machine::<PlainPg>(8, 40);
}

#[test]
fn every_reply_follows_the_protocol_under_a_cache() {
    state_machine::<CachedPg>(4, 40);
}
