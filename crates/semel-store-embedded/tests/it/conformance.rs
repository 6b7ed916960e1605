//! The embedded store keeps every promise.

use std::time::Duration;

use async_trait::async_trait;
use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::{ManualClock, Store};
use semel_store_embedded::EmbeddedStore;
use tempfile::TempDir;

/// Time, and the folder that must outlive the store.
struct TimeAndFolder<T> {
    time: T,
    _folder: TempDir,
}

#[async_trait]
impl<T: Time> Time for TimeAndFolder<T> {
    async fn pass(&self, span: Duration) {
        self.time.pass(span).await;
    }
}

struct ManualClockSubject(EmbeddedStore, TimeAndFolder<ManualClock>);

impl Subject for ManualClockSubject {
    async fn open() -> Self {
        let (folder, clock) = (folder(), ManualClock::new());
        let store = EmbeddedStore::builder(folder.path().join("store")).clock(clock.clone());
        Self(store.open().expect("opens"), TimeAndFolder { time: clock, _folder: folder })
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
}

struct RealTimeSubject(EmbeddedStore, TimeAndFolder<RealTime>);

impl Subject for RealTimeSubject {
    async fn open() -> Self {
        let folder = folder();
        let store = EmbeddedStore::open(folder.path().join("store")).expect("opens");
        Self(store, TimeAndFolder { time: RealTime::default(), _folder: folder })
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

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

mod on_a_manual_clock {
    use super::*;

    semel_conformance::store_tests!({
        let ManualClockSubject(store, time) = ManualClockSubject::open().await;
        (store, time)
    });

    /// Two thousand cases run on a simulated disk, where a sync costs nothing.
    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<ManualClockSubject>(100, 50);
    }
}

/// The single promises do not run on a real clock: their leases are shorter than a sync of a busy disk may take. The
/// state machine measures how long each call took.
#[test]
fn every_answer_follows_the_protocol_on_a_real_clock() {
    state_machine::<RealTimeSubject>(4, 30);
}
