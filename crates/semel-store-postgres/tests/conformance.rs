//! The PostgreSQL store keeps every promise, on a real server, plain and under a cache.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::{Cached, Store};
use semel_store_postgres::PostgresStore;

use common::{Database, Held, Schema, clock::ServerClock};

async fn plain() -> (PostgresStore, Held<RealTime, Schema>) {
    let schema = Schema::new();
    (schema.store().await, Held::real(schema))
}

async fn cached() -> (Cached<PostgresStore>, Held<RealTime, Schema>) {
    let (store, held) = plain().await;
    (Cached::new(store, 1000), held)
}

mod on_a_server_whose_clock_is_set {
    use super::*;

    semel_conformance::store_tests!(ServerClock::open(Schema::new()).await);
}

mod under_a_cache {
    semel_conformance::store_tests!(super::cached().await);
}

/// Plain, on a clock of the server's that moves only when told to: no sequence waits, and every time is
/// compared to the millisecond.
struct Exact(PostgresStore, ServerClock);

impl Subject for Exact {
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
        struct $name($store, Held<RealTime, Schema>);

        impl Subject for $name {
            async fn open() -> Self {
                let (store, held) = $open().await;
                Self(store, held)
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

subject!(Plain, PostgresStore, plain);
subject!(Kept, Cached<PostgresStore>, cached);

#[tokio::test]
async fn schema_and_table_may_have_other_names() {
    let database = Database::new().await;
    let schema = Schema { url: database.url(), name: "system".to_owned() };
    let (store, time) = ServerClock::open(schema).await;
    semel_conformance::store(&store, &time).await;
}

#[test]
fn every_answer_follows_the_protocol() {
    state_machine::<Exact>(100, 40);
}

#[test]
fn every_answer_follows_the_protocol_as_time_goes_by() {
    state_machine::<Plain>(8, 40);
}

#[test]
fn every_answer_follows_the_protocol_under_a_cache() {
    state_machine::<Kept>(4, 40);
}
