//! Three brokers, of which one is killed while a watcher reads the committed offsets.

use semel_servers::{KAFKA, KafkaCluster};
use tokio::task::block_in_place;

use crate::{
    common::{PARTITIONS, TestTopic, until},
    load::{Ledger, publish},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_loses_nothing() {
    const EVENTS: u32 = 900;
    let mut cluster = block_in_place(|| KafkaCluster::start(&KAFKA, 3).unwrap());
    let topic = TestTopic::on(&cluster.addresses(), PARTITIONS, 3).await;
    block_in_place(|| cluster.caught_up(&topic.name).unwrap());
    let mut ledger = Ledger::default();
    let watcher = ledger.watch(&topic);
    let consumers = [ledger.start(&topic).await, ledger.start(&topic).await];
    let publishing = publish(&topic, 0..EVENTS);
    let killing = async {
        until("some ran", async || ledger.ran() >= EVENTS as usize / 4).await;
        block_in_place(|| {
            let leader = cluster.leader(&topic.name, 0).unwrap();
            cluster.nodes[leader].kill().unwrap();
            cluster.leader(&topic.name, 0).unwrap();
            cluster.nodes[leader].restart().unwrap();
        });
    };
    let (records, ()) = futures_util::join!(publishing, killing);
    ledger.finish(&topic, EVENTS, records).await;
    for consumer in consumers {
        consumer.stop().await;
    }
    watcher.end();
}
