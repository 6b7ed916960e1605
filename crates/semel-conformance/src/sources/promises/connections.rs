//! Several connections to one consumer, lost connections, and a restart of the broker.

use std::{convert::Infallible, pin::pin, time::Duration};

use futures_util::future::join;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::Fixture;
use crate::sources::queue::{Queue, ack, body};

pub(in crate::sources) async fn a_dropped_receive_loses_nothing(fixture: Fixture) {
    const ROUNDS: usize = 40;
    let queue = Queue::open(fixture).await;
    let mut missing: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let bodies = [format!("{round} a"), format!("{round} b")];
        missing.extend(bodies.clone());
        // Each round drops the call at another moment: before, while, and after it takes the messages.
        let publishing = queue.publish(bodies);
        let receiving =
            timeout(Duration::from_millis(round as u64 % 20), queue.source.receive(1 + round % 3));
        let (_, received) = join(publishing, receiving).await;
        for delivery in received.into_iter().flatten().flatten() {
            missing.retain(|it| *it != body(&delivery));
            ack(delivery).await;
        }
    }
    while !missing.is_empty() {
        let delivery = queue.receive_one().await;
        missing.retain(|it| *it != body(&delivery));
        ack(delivery).await;
    }
}

pub(in crate::sources) async fn two_processes_share_the_messages(fixture: Fixture) {
    const COUNT: usize = 40;
    let one = Queue::open(fixture).await;
    let other = one.open_another().await;
    let bodies: Vec<_> = (0..COUNT).map(|number| format!("{number:02}")).collect();
    one.publish(bodies.clone()).await;
    let acked = Mutex::new(Vec::new());
    let work = async |queue: &Queue, max: usize| -> Infallible {
        loop {
            for delivery in queue.receive(max).await {
                let body = body(&delivery);
                // It may move to the other process before, which gets it again.
                if delivery.ack().await.is_ok() {
                    acked.lock().push(body);
                }
            }
        }
    };
    let finished = async {
        while acked.lock().len() < COUNT {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = work(&one, 1) => {}
        _ = work(&other, 3) => {}
        () = finished => {}
    }
    // While it is open, a broker with partitions hands it a part of the messages.
    drop(other);
    let mut acked = acked.into_inner();
    acked.sort_unstable();
    assert_eq!(acked, bodies, "two processes acknowledge each message once");
    one.nothing_is_left("all messages were acknowledged").await;
}

pub(in crate::sources) async fn a_process_that_is_gone_loses_nothing(fixture: Fixture) {
    let gone = Queue::open(fixture).await;
    gone.publish(["1", "2", "3", "4"]).await;
    let held = gone.receive_all(3).await;
    let next = gone.open_another().await;
    drop((held, gone));
    let mut missing = vec!["1", "2", "3", "4"];
    while !missing.is_empty() {
        let delivery = next.receive_one().await;
        let body = body(&delivery);
        // The broker notices in its own time that a process is gone, and may hand out all messages anew then.
        if delivery.ack().await.is_ok() {
            let at = missing.iter().position(|it| *it == body);
            missing.remove(at.expect("an acknowledged message does not come again"));
        }
    }
}

pub(in crate::sources) async fn a_waiting_call_gets_what_another_process_left(fixture: Fixture) {
    let one = Queue::open(fixture).await;
    let other = one.open_another().await;
    let (mut first, mut second) = (pin!(one.receive_one()), pin!(other.receive_one()));
    // Both wait before there is a message.
    tokio::select! {
        _ = &mut first => panic!("nothing was published"),
        _ = &mut second => panic!("nothing was published"),
        () = sleep(one.deadline() / 4) => {}
    }
    one.publish(["left"]).await;
    let again = tokio::select! {
        left = &mut first => {
            drop(left);
            second.await
        }
        left = &mut second => {
            drop(left);
            first.await
        }
    };
    assert_eq!(body(&again), "left");
    ack(again).await;
}

pub(in crate::sources) async fn a_closed_source_loses_nothing(fixture: Fixture) {
    let closed = Queue::open(fixture).await;
    closed.publish(["1", "2", "3", "4"]).await;
    let held = closed.receive_all(2).await;
    closed.source.close().await.expect("the broker can be reached");
    let next = closed.open_another().await;
    drop(closed);
    next.receive_and_ack(&["1", "2", "3", "4"]).await;
    drop(held);
}

pub(in crate::sources) async fn a_restart_of_the_broker_loses_nothing(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["acked", "held"]).await;
    let mut held = Vec::new();
    for delivery in queue.receive_all(2).await {
        match body(&delivery).as_str() {
            "acked" => ack(delivery).await,
            _ => held.push(delivery),
        }
    }
    queue.publish(["waits"]).await;
    queue.fixture.restart_broker().await;
    // A source whose group outlives the restart keeps what this process holds, for as long as it does.
    drop(held);
    queue.publish(["new"]).await;
    let mut wanted = vec!["held", "waits", "new"];
    while !wanted.is_empty() {
        let delivery = queue.receive_one().await;
        let body = body(&delivery);
        // Any message may come again: a broker that was killed may have lost the last settlements.
        wanted.retain(|it| *it != body);
        if delivery.ack().await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    }
}
