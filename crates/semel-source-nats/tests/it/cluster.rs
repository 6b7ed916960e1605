//! A cluster of three servers.

use semel_consumer::Source;
use semel_servers::NatsCluster;
use serde_json::json;
use tokio::task::block_in_place;

use crate::{
    common::{Broker, body, receive_one, until},
    given_up::exhaust,
    restart::receive_at_last,
};

async fn replicated(nodes: &NatsCluster, retention: &str) -> Broker {
    let addresses: Vec<String> = nodes.addresses().split(',').map(str::to_owned).collect();
    let client = async_nats::connect(addresses).await.unwrap();
    let url = format!("nats://{}", nodes.addresses());
    let broker =
        Broker::over(client, &url, json!({ "num_replicas": 3, "retention": retention })).await;
    nodes.leader(&broker.stream).unwrap();
    broker
}

#[tokio::test(flavor = "multi_thread")]
async fn a_given_up_message_leaves_a_replicated_stream() {
    let nodes = NatsCluster::start(3).unwrap();
    for retention in ["workqueue", "interest"] {
        let broker = replicated(&nodes, retention).await;
        broker.make_consumer("c", json!({ "max_deliver": 2 })).await;
        let source = broker.source().await;
        broker.publish("x", &[], "one").await;
        exhaust(&source, 2).await.ack().await.unwrap();
        until(retention, async || broker.stored().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_leader_is_survived() {
    let mut nodes = NatsCluster::start(3).unwrap();
    let broker = replicated(&nodes, "limits").await;
    broker.make_consumer("c", json!({})).await;
    let source = broker.source().await;
    broker.publish("x", &[], "before").await;
    receive_one(&source).await.ack().await.unwrap();
    let (received, ()) = tokio::join!(receive_at_last(&source), async {
        until("it waits", async || broker.consumer_info().await["num_waiting"] == 1).await;
        let leader = nodes.leader(&broker.stream).unwrap();
        block_in_place(|| nodes.nodes[leader].kill().unwrap());
        let another = nodes.leader(&broker.stream).unwrap();
        assert_ne!(leader, another);
        let publish = async || {
            let subject = broker.subject("x");
            broker
                .client
                .request(subject, "after".into())
                .await
                .is_ok_and(|ack| !ack.payload.is_empty())
        };
        until("it is published", publish).await;
    });
    assert!(received.iter().all(|delivery| body(delivery) == "after"));
    for delivery in received {
        delivery.ack().await.unwrap();
    }
    source.close().await.unwrap();
}
