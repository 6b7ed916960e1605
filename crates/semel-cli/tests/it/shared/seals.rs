//! Two machines rotate their seal keys one after the other, and no replay fails.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{SharedStore, load::GatewayLoad, on_all};
use crate::{
    harness::{GatewayProcess, Setup, TestUpstream, until},
    operators::seals::{fresh, write_keys},
};

on_all! {
    a_fleet_rotates_under_load_and_no_replay_fails
}

/// Two machines, each with a gateway and a key file.
struct SealedGateways {
    setups: [Setup; 2],
    gateways: [Arc<GatewayProcess>; 2],
}

impl SealedGateways {
    async fn start(store: &SharedStore, upstream: &TestUpstream, keys: &[&str]) -> Self {
        let setup = || store.to(upstream).flag("--seal-keys", "keys");
        let setups = [setup(), setup()];
        setups.iter().for_each(|setup| write_keys(&setup.folder().join("keys"), keys));
        let gateways = [Arc::new(setups[0].start().await), Arc::new(setups[1].start().await)];
        Self { setups, gateways }
    }

    /// Writes the file on one machine after the other, and waits until both gateways use it.
    async fn rotate(&self, keys: &[&str], line: &str) {
        for (setup, gateway) in self.setups.iter().zip(&self.gateways) {
            write_keys(&setup.folder().join("keys"), keys);
            gateway.sighup();
            until(line, async || gateway.stderr().contains(line)).await;
            // A rollout takes some time between two machines.
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn a_fleet_rotates_under_load_and_no_replay_fails(store: SharedStore) {
    let upstream = TestUpstream::counting().await;
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (fresh(folder.path(), "old").await, fresh(folder.path(), "new").await);
    let fleet = SealedGateways::start(&store, &upstream, &[&old]).await;
    let load = GatewayLoad::start(&fleet.gateways);
    load.pass(8).await;
    fleet.rotate(&[&old, &new], "sealing with key old; these open: old, new").await;
    load.pass(8).await;
    fleet.rotate(&[&new, &old], "sealing with key new; these open: new, old").await;
    load.pass(8).await;
    load.end().await.assert_each_ran_once(&upstream);
    let keys = fleet.setups[0].folder().join("keys");
    let doctor = store.semel(&["doctor", "--seal-keys", keys.to_str().unwrap()]).await;
    for word in ["key new seals", "new: ", "old: ", "open ("] {
        assert!(doctor.stdout.contains(word), "{word}: {doctor:#?}");
    }
}
