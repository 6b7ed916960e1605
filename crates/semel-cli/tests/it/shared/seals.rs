//! A fleet rotates its seal keys, one machine after the other, and no replay fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};

use super::{Place, on_each};
use crate::{
    harness::{Ask, Gateway, Setup, Upstream, until},
    operators::seals::{fresh, write_keys},
};

on_each! {
    a_fleet_rotates_under_load_and_no_replay_fails
}

/// Two machines: a gateway on each, and a key file of its own.
struct Fleet {
    setups: [Setup; 2],
    gateways: [Arc<Gateway>; 2],
}

impl Fleet {
    async fn start(place: &Place, upstream: &Upstream, keys: &[&str]) -> Self {
        let setup = || place.to(upstream).flag("--seal-keys", "keys");
        let setups = [setup(), setup()];
        setups.iter().for_each(|setup| write_keys(&setup.folder().join("keys"), keys));
        let gateways = [Arc::new(setups[0].start().await), Arc::new(setups[1].start().await)];
        Self { setups, gateways }
    }

    /// The same file on one machine after the other. Answers when both have it.
    async fn rotate(&self, keys: &[&str], told: &str) {
        for (setup, gateway) in self.setups.iter().zip(&self.gateways) {
            write_keys(&setup.folder().join("keys"), keys);
            gateway.sighup();
            until(told, async || gateway.stderr().contains(told)).await;
            // Between two machines there is always some time.
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Runs on one machine and asks again on both, for an old key and for the newest.
async fn load(fleet: [Arc<Gateway>; 2], task: u32, end: Arc<AtomicBool>, asked: Arc<AtomicU32>) {
    let (here, there) = (&fleet[task as usize % 2], &fleet[1 - task as usize % 2]);
    let mut round = 0;
    while !end.load(SeqCst) {
        let newest = Ask::charge(&format!("{task}-{round}"));
        let first = here.ask(&newest).await;
        assert_eq!(first.status, 200, "{first:?}");
        for (node, ask) in
            [(there, &newest), (here, &newest), (there, &Ask::charge(&format!("{task}-0")))]
        {
            let answer = node.ask(ask).await;
            assert!(answer.status == 200 && answer.is_replay(), "{answer:?}");
        }
        assert_eq!(there.ask(&newest).await.body, first.body);
        round += 1;
        asked.fetch_add(1, SeqCst);
    }
}

async fn a_fleet_rotates_under_load_and_no_replay_fails(place: Place) {
    let upstream = Upstream::counting().await;
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (fresh(folder.path(), "old").await, fresh(folder.path(), "new").await);
    let fleet = Fleet::start(&place, &upstream, &[&old]).await;
    let (end, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        tasks.spawn(load(fleet.gateways.clone(), task, end.clone(), asked.clone()));
    }
    let pass = async |rounds: u32| {
        let before = asked.load(SeqCst);
        until("the load goes on", async || asked.load(SeqCst) >= before + rounds).await;
    };
    pass(8).await;
    fleet.rotate(&[&old, &new], "sealing with key old; these open: old, new").await;
    pass(8).await;
    fleet.rotate(&[&new, &old], "sealing with key new; these open: new, old").await;
    pass(8).await;
    end.store(true, SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(upstream.count(), asked.load(SeqCst) as usize, "each ran once");
    let keys = fleet.setups[0].folder().join("keys");
    let doctor = place.semel(&["doctor", "--seal-keys", keys.to_str().unwrap()]).await;
    for word in ["key new seals", "new: ", "old: ", "open ("] {
        assert!(doctor.stdout.contains(word), "{word}: {doctor:#?}");
    }
}
