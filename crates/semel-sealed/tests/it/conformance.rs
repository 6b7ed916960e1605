//! The layer keeps every promise over memory, a folder and PostgreSQL, on manual clocks. `proof/layers` tests it over
//! the other stores, and with other layers around it.

use semel_conformance::{Subject, Time, state_machine};
use semel_core::{Cached, ManualClock, MemoryStore, Store};
use semel_sealed::Sealed;
use semel_store_embedded::EmbeddedStore;
use semel_store_postgres::PostgresStore;
use tempfile::TempDir;

use crate::harness::sealed;
use crate::postgres::{Schema, clock::ServerClock};

/// A sealed store, its clock, and a resource that must outlive it.
struct SealedSubject<S, T, H = ()>(S, T, H);

macro_rules! subject {
    ($name:ty, $open:expr) => {
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

type InMemory = SealedSubject<Sealed<MemoryStore>, ManualClock>;
type UnderACache = SealedSubject<Cached<Sealed<MemoryStore>>, ManualClock>;
type InAFolder = SealedSubject<Sealed<EmbeddedStore>, ManualClock, TempDir>;
type OnPostgres = SealedSubject<Sealed<PostgresStore>, ServerClock>;

subject!(InMemory, {
    let (store, clock) = memory();
    (store, clock, ())
});
subject!(UnderACache, {
    let (store, clock) = cached();
    (store, clock, ())
});
subject!(InAFolder, folder());
subject!(OnPostgres, {
    let (store, clock) = on_postgres().await;
    (store, clock, ())
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
        state_machine::<OnPostgres>(10, 40);
    }
}
