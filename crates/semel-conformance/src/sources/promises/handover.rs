//! What a source hands over: all messages, untouched, no more than it is asked for, and in order.

use std::{collections::HashMap, pin::pin, time::Duration};

use bytes::Bytes;
use semel_consumer::Message;
use tokio::time::{Instant, sleep, timeout};

use super::Fixture;
use crate::sources::queue::{Queue, ack, body};

/// Pauses between two looks at the lag.
const LOOK: Duration = Duration::from_millis(20);

pub(in crate::sources) async fn what_was_published_is_handed_over(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    let bodies: Vec<_> = (0..20).map(|number| format!("message {number}")).collect();
    queue.publish(bodies.clone()).await;
    let wanted: Vec<_> = bodies.iter().map(String::as_str).collect();
    queue.receive_and_ack(&wanted).await;
    queue.receives_nothing(queue.deadline() / 2, "a message that was not published").await;
}

pub(in crate::sources) async fn body_and_headers_are_untouched(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    let all_bytes: Vec<u8> = (0..=255).collect();
    let large = vec![b'x'; 100_000];
    let bodies: [Bytes; 5] = [
        Bytes::from_static(b" {\"a\" : 1}\r\n\0 "),
        Bytes::new(),
        Bytes::from(all_bytes),
        Bytes::from(large),
        Bytes::from_static("\u{feff}Grüße".as_bytes()),
    ];
    for (number, bytes) in bodies.iter().enumerate() {
        let message = Message::new("orders", bytes.clone())
            .with_header("Test-Number", number.to_string())
            .with_header("test-lower-case", "Grüße, \"quoted\"; a=b")
            .with_header("Test-Inner-Space", "a  b");
        queue.fixture.publish(message).await;
    }
    for _ in &bodies {
        let delivery = queue.receive_one().await;
        let message = &delivery.message;
        let number = message.header("Test-Number").and_then(|it| it.parse::<usize>().ok());
        let number = number.expect("a header of the message is missing");
        assert_eq!(message.body, bodies[number], "body {number} was changed");
        assert_eq!(
            message.header("test-lower-case"),
            Some("Grüße, \"quoted\"; a=b"),
            "a header was changed"
        );
        assert_eq!(message.header("Test-Inner-Space"), Some("a  b"), "a header was changed");
        let same_case = message.headers.iter().any(|header| header.name == "test-lower-case");
        assert!(same_case, "the name of a header was changed");
        ack(delivery).await;
    }
}

pub(in crate::sources) async fn repeated_headers_keep_their_order(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    let message = Message::new("orders", "repeated");
    let message = ["one", "two", "one"]
        .into_iter()
        .fold(message, |it, value| it.with_header("Test-Repeated", value));
    queue.fixture.publish(message).await;
    let delivery = queue.receive_one().await;
    let values = delivery.message.headers.iter().filter(|header| header.name == "Test-Repeated");
    let values: Vec<_> = values.map(|header| header.value.clone()).collect();
    assert_eq!(values, ["one", "two", "one"], "the values of a header were changed");
    ack(delivery).await;
}

pub(in crate::sources) async fn no_more_than_max_are_handed_over(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish((0..12).map(|number| number.to_string())).await;
    let mut received = Vec::new();
    for max in [1, 1, 3, 1, 100, 100, 100, 100, 100, 100, 100, 100] {
        if received.len() == 12 {
            break;
        }
        // The count is asserted in there.
        received.extend(queue.receive(max).await);
    }
    let mut bodies: Vec<_> = received.iter().map(body).collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 12, "twelve calls hand over twelve messages");
    for delivery in received {
        ack(delivery).await;
    }
}

pub(in crate::sources) async fn an_empty_queue_is_no_end(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    let mut receiving = pin!(queue.source.receive(5));
    tokio::select! {
        received = &mut receiving => panic!("nothing was published, and a call returned {received:?}"),
        () = sleep(queue.deadline() * 2) => {}
    }
    queue.publish(["late"]).await;
    let received = timeout(queue.fixture.patience(), receiving).await;
    let received = received.expect("a waiting call gets a message that comes later");
    let bodies: Vec<_> = received.expect("the broker can be reached").iter().map(body).collect();
    assert_eq!(bodies, ["late"]);
}

pub(in crate::sources) async fn a_message_id_is_the_producers(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.fixture.publish(Message::new("orders", "with").with_id("order-7/a b")).await;
    queue.publish(["without"]).await;
    for delivery in queue.receive_all(2).await {
        let wanted = (body(&delivery) == "with").then_some("order-7/a b");
        let found = delivery.message.message_id.as_deref();
        assert_eq!(found, wanted, "the id of {delivery:?} is the producer's, or there is none");
        ack(delivery).await;
    }
}

pub(in crate::sources) async fn an_ordering_key_is_the_producers(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    for key in ["customer-7", "customer-8"] {
        queue.fixture.publish(Message::new("orders", key).with_ordering_key(key)).await;
    }
    for delivery in queue.receive_all(2).await {
        let key = delivery.message.ordering_key.clone();
        assert_eq!(key, Some(body(&delivery)), "the ordering key is the producer's");
        ack(delivery).await;
    }
}

pub(in crate::sources) async fn a_key_is_in_order(fixture: Fixture) {
    const EACH: usize = 15;
    let queue = Queue::open(fixture).await;
    for number in 0..EACH {
        for key in ["a", "b"] {
            let message = Message::new("orders", format!("{key}{number}")).with_ordering_key(key);
            queue.fixture.publish(message).await;
        }
    }
    let mut received: HashMap<String, Vec<String>> = HashMap::new();
    let mut open = Vec::new();
    while open.len() < 2 * EACH {
        for delivery in queue.receive(7).await {
            let key = delivery.message.ordering_key.clone().expect("the key of the message");
            received.entry(key).or_default().push(body(&delivery));
            open.push(delivery);
        }
    }
    for (key, bodies) in received {
        let wanted: Vec<_> = (0..EACH).map(|number| format!("{key}{number}")).collect();
        assert_eq!(bodies, wanted, "first deliveries of one key are in order");
    }
    for delivery in open {
        ack(delivery).await;
    }
}

pub(in crate::sources) async fn the_lag_counts_what_waits(fixture: Fixture) {
    let queue = Queue::open(fixture).await;
    queue.publish(["1", "2", "3", "4", "5"]).await;
    if !lag_becomes(&queue, |lag| lag >= 5, "five messages wait").await {
        return;
    }
    queue.receive_and_ack(&["1", "2", "3", "4", "5"]).await;
    lag_becomes(&queue, |lag| lag == 0, "all messages are acknowledged").await;
}

/// Waits until the lag is as wanted. False if the broker does not say.
async fn lag_becomes(queue: &Queue, wanted: impl Fn(u64) -> bool, why: &str) -> bool {
    let until = Instant::now() + queue.fixture.patience();
    loop {
        let lag = queue.source.lag().await.expect("the broker can be reached");
        match lag {
            None => return false,
            Some(lag) if wanted(lag) => return true,
            Some(lag) => assert!(Instant::now() < until, "{why}, and the lag is still {lag}"),
        }
        sleep(LOOK).await;
    }
}
