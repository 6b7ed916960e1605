//! What becomes of a message that is held and not settled in time, and what extending its deadline does.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, sleep};

use super::Fixture;
use crate::sources::{
    SourceAbility,
    queue::{Queue, ack},
};

/// How much earlier than asked a broker's timer may end.
const TIMER: Duration = Duration::from_millis(20);

pub(in crate::sources) async fn an_unsettled_message_comes_again(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["1", "2"]).await;
    let held = queue.receive_all(2).await;
    queue.receive_and_ack(&["1", "2"]).await;
    drop(held);
    queue.nothing_is_left("all messages were acknowledged").await;
}

pub(in crate::sources) async fn an_extended_message_does_not_come_again(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["slow"]).await;
    let (_, settlement) = queue.receive_one().await.into_parts();
    let span = queue.deadline() * 4;
    queue.receives_nothing_while_extended(&*settlement, span, "the message is extended").await;
    settlement
        .ack()
        .await
        .expect("the broker confirms the acknowledgement of an extended delivery");
    queue.nothing_is_left("the message was acknowledged").await;
}

pub(in crate::sources) async fn an_extended_message_comes_again_at_last(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["slow"]).await;
    let (_, settlement) = queue.receive_one().await.into_parts();
    let span = queue.deadline() * 2;
    queue.receives_nothing_while_extended(&*settlement, span, "the message is extended").await;
    drop(settlement);
    queue.receive_and_ack(&["slow"]).await;
}

pub(in crate::sources) async fn extending_after_an_ack_does_nothing(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["done"]).await;
    let (_, settlement) = queue.receive_one().await.into_parts();
    settlement.ack().await.expect("the broker confirms an acknowledgement");
    let span = queue.deadline() * 2;
    queue.receives_nothing_while_extended(&*settlement, span, "the message was acknowledged").await;
    drop(settlement);
    queue.nothing_is_left("the message was acknowledged").await;
}

pub(in crate::sources) async fn extending_after_a_nack_does_nothing(fixture: Fixture) {
    let delays = !fixture.unsupported().contains(&SourceAbility::DelaysNacks);
    let queue = Queue::open(fixture).await;
    queue.publish(["again"]).await;
    let (_, settlement) = queue.receive_one().await.into_parts();
    let delay = if delays { queue.deadline() * 3 } else { Duration::ZERO };
    let before = Instant::now();
    settlement.nack(delay).await.expect("the broker confirms that a delivery is given back");
    let mut receiving = pin!(queue.receive_one());
    // If these extensions had an effect, the message would come too early, or never.
    let again = loop {
        settlement.extend().await.expect("extending a settled delivery does nothing");
        tokio::select! {
            again = &mut receiving => break again,
            () = sleep(queue.deadline() / 4) => {}
        }
    };
    let waited = before.elapsed();
    assert!(waited + TIMER >= delay, "a message with a delay of {delay:?} came after {waited:?}");
    ack(again).await;
}
