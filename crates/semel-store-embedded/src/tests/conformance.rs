//! The state machine on a simulated disk, where a sync costs nothing: many cases in little time.

use std::sync::Arc;

use semel_conformance::{Subject, Time, state_machine};
use semel_core::{ManualClock, Store};
use semel_remote::batch::BatchLimits;

use super::{simulated_disk::SimulatedDisk, test_store::SEGMENT};
use crate::{EmbeddedStore, log::Filling, open::open};

struct Simulated(EmbeddedStore, ManualClock);

impl Subject for Simulated {
    async fn open() -> Self {
        let (disk, clock) = (Arc::new(SimulatedDisk::default()), ManualClock::new());
        let opened = open(disk, 32 * SEGMENT, Filling::Inline, Arc::new(clock.clone())).unwrap();
        Self(EmbeddedStore::start(opened, BatchLimits::default()).unwrap(), clock)
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
}

#[test]
fn every_answer_follows_the_protocol() {
    state_machine::<Simulated>(2_000, 50);
}
