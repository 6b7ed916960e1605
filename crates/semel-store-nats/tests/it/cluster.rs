//! A cluster whose leader is killed: no outcome is lost, and no key is granted twice.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use semel_core::{Claim, ClaimRequest, Completion, KeyHash, Nonce, Store};
use semel_servers::NatsCluster;
use semel_store_nats::NatsStore;
use tokio::task::JoinSet;

use crate::common::{LONG, completion, request, until};

const ROUNDS: usize = 3;
const CALLERS: usize = 8;

/// Claims and completes new keys until `deadline`, each key in both stores at the same time. Returns each claim with
/// the number of its grants, and whether its outcome was recorded.
async fn race(stores: [NatsStore; 2], deadline: Instant) -> Vec<(ClaimRequest, usize, bool)> {
    let mut all = Vec::new();
    while Instant::now() < deadline {
        let one = request(LONG);
        let other = ClaimRequest { nonce: Nonce::random(), ..one.clone() };
        let (reply, other_reply) = tokio::join!(stores[0].claim(&one), stores[1].claim(&other));
        let mut leases = Vec::new();
        for reply in [reply, other_reply] {
            if let Ok(Claim::Granted(lease)) = reply {
                leases.push(lease);
            }
        }
        let mut recorded = false;
        if let Some(lease) = leases.first() {
            let reply = stores[0].complete(&completion(lease.owner, "done")).await;
            recorded = matches!(reply, Ok(Completion::Recorded));
        }
        all.push((one, leases.len(), recorded));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_offline_is_reported_as_a_warning() {
    let mut nodes = NatsCluster::start(3).unwrap();
    let url = format!("nats://{}/ids", nodes.addresses());
    let _store = NatsStore::connect(&url).await.unwrap();
    nodes.caught_up("KV_ids").unwrap();
    let report = async || {
        let findings = NatsStore::builder(&url).checks().await.unwrap();
        findings.iter().map(|it| format!("{:?} {}\n", it.level, it.what)).collect::<String>()
    };
    until("all replicas are online", async || report().await.contains("Good 3 copies, all online"))
        .await;
    let follower = (nodes.leader("KV_ids").unwrap() + 1) % 3;
    nodes.nodes[follower].kill().unwrap();
    until("one replica is offline", async || {
        report().await.contains("Warning 3 copies, of which 1")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_leader_neither_forgets_nor_grants_twice() {
    let mut nodes = NatsCluster::start(3).unwrap();
    let url = format!("nats://{}/ids", nodes.addresses());
    let stores = [NatsStore::connect(&url).await.unwrap(), NatsStore::connect(&url).await.unwrap()];
    let mut done: HashMap<KeyHash, ClaimRequest> = HashMap::new();
    for round in 0..ROUNDS {
        let deadline = Instant::now() + Duration::from_secs(4);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(race(stores.clone(), deadline));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = nodes.leader("KV_ids").unwrap();
        nodes.nodes[leader].kill().unwrap();
        for (first, grants, recorded) in callers.join_all().await.into_iter().flatten() {
            assert!(grants <= 1, "round {round}: one key was granted {grants} times");
            if recorded {
                done.insert(first.key, first);
            }
        }
        nodes.nodes[leader].restart().unwrap();
        until("the store works again", async || stores[0].claim(&request(LONG)).await.is_ok())
            .await;
        nodes.caught_up("KV_ids").unwrap();
    }
    assert!(done.len() > ROUNDS * CALLERS, "too few operations were done");
    for first in done.into_values() {
        let reply =
            stores[1].claim(&ClaimRequest { nonce: Nonce::random(), ..first }).await.unwrap();
        assert!(matches!(reply, Claim::Replay(_)), "an answered completion is gone: {reply:?}");
    }
}
