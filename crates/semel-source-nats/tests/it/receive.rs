//! Receiving messages.

use std::time::{Duration, Instant, SystemTime};

use semel_consumer::Source;
use semel_core::ErrorKind;
use semel_source_nats::{NatsSource, OrderingKey};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::common::{Broker, body, receive, receive_one, soon, until};

#[tokio::test]
async fn a_message_arrives_with_all_that_the_broker_knows() {
    let broker = Broker::with_consumer(json!({})).await;
    let headers = [
        ("Nats-Msg-Id", "order-1"),
        ("Reply-To", "replies.1"),
        ("Tenant", "b"),
        ("Tenant", "a"),
        ("ce-partitionkey", "customer-7"),
    ];
    broker.publish("new", &headers, "{}").await;
    let source = broker.source().await;
    let message = receive_one(&source).await.message.clone();
    assert_eq!(message.topic, broker.subject("new"));
    assert_eq!(&message.body[..], b"{}");
    assert_eq!(message.message_id.as_deref(), Some("order-1"));
    assert_eq!(message.reply_to.as_deref(), Some("replies.1"));
    assert_eq!(message.ordering_key.as_deref(), Some("customer-7"));
    assert_eq!(message.deliveries, Some(1));
    assert_eq!(message.position, format!("{}/1", broker.stream));
    assert!(!message.given_up && !message.is_redelivery());
    let tenants = message.headers.iter().filter(|header| header.name == "Tenant");
    assert_eq!(tenants.map(|header| &header.value[..]).collect::<Vec<_>>(), [b"b", b"a"]);
    let age = SystemTime::now().duration_since(message.published_at.unwrap()).unwrap_or_default();
    assert!(age < Duration::from_secs(3600), "{age:?}");
}

#[tokio::test]
async fn the_ordering_key_can_be_the_subject() {
    let broker = Broker::with_consumer(json!({})).await;
    broker.publish("customer.7", &[], "").await;
    let source = broker.builder().ordering_key(OrderingKey::Subject).connect().await.unwrap();
    assert_eq!(receive_one(&source).await.message.ordering_key, Some(broker.subject("customer.7")));
}

#[tokio::test]
async fn a_call_returns_what_is_there_and_no_more_than_was_asked_for() {
    let broker = Broker::with_consumer(json!({})).await;
    broker.publish_numbers(0..10).await;
    let source = broker.source().await;
    let first = receive(&source, 3, 3).await;
    assert_eq!(first.iter().map(body).collect::<Vec<_>>(), ["0", "1", "2"]);
    assert_eq!(broker.unacknowledged().await, 3, "nothing waits in a buffer");
    // There are seven. The call neither waits for fifty nor keeps asking for them.
    let second = receive(&source, 7, 50).await;
    assert_eq!(second.iter().map(body).collect::<Vec<_>>(), ["3", "4", "5", "6", "7", "8", "9"]);
    broker.publish_numbers(10..12).await;
    assert_eq!(broker.unacknowledged().await, 10, "nothing is delivered between two calls");
    for delivery in first.into_iter().chain(second) {
        delivery.ack().await.unwrap();
    }
    assert_eq!(source.lag().await.unwrap(), Some(2));
}

#[tokio::test]
async fn a_waiting_call_returns_with_the_first_message() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let (received, ()) = tokio::join!(soon(source.receive(100)), async {
        until("it waits", async || broker.consumer_info().await["num_waiting"] == 1).await;
        broker.publish("x", &[], "late").await;
    });
    assert_eq!(received.unwrap().iter().map(body).collect::<Vec<_>>(), ["late"]);
}

/// Two workers wait, and there are fewer messages than they have asked for.
#[tokio::test]
async fn workers_that_wait_side_by_side_get_all_messages() {
    let broker = Broker::with_consumer(json!({})).await;
    let (one, other) = (broker.source().await, broker.source().await);
    let work = async |source: &NatsSource| {
        let mut done = 0;
        // The last messages may go to the other worker.
        while let Ok(received) = timeout(Duration::from_secs(2), source.receive(100)).await {
            for delivery in received.unwrap() {
                delivery.ack().await.unwrap();
                done += 1;
            }
        }
        done
    };
    let publish = async {
        for number in 0..100 {
            broker.publish("x", &[], &number.to_string()).await;
        }
    };
    let (first, second, ()) = tokio::join!(work(&one), work(&other), publish);
    assert_eq!(first + second, 100);
}

/// A worker that holds all that the server allows gets more after it has acknowledged some.
#[tokio::test]
async fn a_full_consumer_continues_after_an_acknowledgement() {
    let broker = Broker::with_consumer(json!({ "max_ack_pending": 2 })).await;
    broker.publish_numbers(0..5).await;
    let source = broker.source().await;
    let mut held = receive(&source, 2, 10).await;
    let blocked = timeout(Duration::from_millis(300), source.receive(10)).await;
    assert!(blocked.is_err(), "the server allows two");
    let mut seen = 2;
    while seen < 5 {
        held.remove(0).ack().await.unwrap();
        let more = soon(source.receive(10)).await.unwrap();
        seen += more.len();
        held.extend(more);
    }
    assert_eq!(body(&held[held.len() - 1]), "4");
}

/// One worker waits for more messages than there are, and the server lets no other one wait for the rest.
#[tokio::test]
async fn a_worker_waits_behind_another_one_at_a_full_consumer() {
    let broker = Broker::with_consumer(json!({ "max_ack_pending": 2 })).await;
    broker.publish_numbers(0..3).await;
    let (one, other) = (broker.source().await, broker.source().await);
    let held = receive(&one, 2, 10).await;
    let ((first, second), ()) = tokio::join!(
        async {
            tokio::join!(
                timeout(Duration::from_secs(3), one.receive(10)),
                timeout(Duration::from_secs(3), other.receive(10))
            )
        },
        async {
            sleep(Duration::from_millis(500)).await;
            for delivery in held {
                delivery.ack().await.unwrap();
            }
        }
    );
    let received = [first, second].into_iter().flatten().map(|received| received.unwrap().len());
    assert_eq!(received.sum::<usize>(), 1, "the last message reaches one of them");
}

/// The runtime drops the future of a call whenever something else happens.
#[tokio::test]
async fn a_dropped_call_loses_no_message() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let publish = async {
        for number in 0..200 {
            broker.publish("x", &[], &number.to_string()).await;
        }
    };
    let receive = async {
        let mut seen = Vec::new();
        for round in 0.. {
            if seen.len() == 200 {
                break;
            }
            let patience = Duration::from_micros(500 * (round % 7));
            let Ok(received) = timeout(patience, source.receive(7)).await else { continue };
            for delivery in received.unwrap() {
                seen.push(body(&delivery).parse::<u32>().unwrap());
                assert_eq!(delivery.message.deliveries, Some(1));
                delivery.ack().await.unwrap();
            }
        }
        seen
    };
    let ((), seen) = soon(async { tokio::join!(publish, receive) }).await;
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

/// A consumer that is paused drops its call, and nothing extends the deadlines of messages that would come then.
#[tokio::test]
async fn a_dropped_call_that_is_not_repeated_is_withdrawn() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let paused = timeout(Duration::from_millis(200), source.receive(10)).await;
    assert!(paused.is_err());
    broker.publish_numbers(0..3).await;
    until("nothing is requested", async || broker.consumer_info().await["num_waiting"] == 0).await;
    // Another worker gets them long before the deadline of a minute.
    let other = broker.source().await;
    for delivery in receive(&other, 3, 10).await {
        delivery.ack().await.unwrap();
    }
    broker.publish("x", &[], "after the pause").await;
    assert_eq!(body(&receive_one(&source).await), "after the pause");
}

#[tokio::test]
async fn closing_gives_back_what_was_received_and_not_returned() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let waiting = timeout(Duration::from_millis(200), source.receive(10)).await;
    assert!(waiting.is_err());
    broker.publish_numbers(0..3).await;
    until("they arrived", async || broker.unacknowledged().await > 0).await;
    source.close().await.unwrap();
    // Another worker gets them long before the deadline of a minute.
    let other = broker.source().await;
    assert_eq!(receive(&other, 3, 10).await.len(), 3);
    assert_eq!(broker.consumer_info().await["num_waiting"], 0, "the request is gone");
}

#[tokio::test]
async fn closing_ends_a_call_that_waits() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let (received, closed) = tokio::join!(soon(source.receive(10)), async {
        sleep(Duration::from_millis(100)).await;
        source.close().await
    });
    assert!(received.unwrap().is_empty());
    closed.unwrap();
}

#[tokio::test]
async fn a_consumer_that_is_deleted_is_named_with_the_fix() {
    let broker = Broker::with_consumer(json!({})).await;
    let source = broker.source().await;
    let (received, ()) = tokio::join!(soon(source.receive(10)), async {
        until("it waits", async || broker.consumer_info().await["num_waiting"] == 1).await;
        broker.api(&format!("CONSUMER.DELETE.{}.c", broker.stream), json!({})).await;
    });
    let error = received.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("nats consumer add"), "{error}");
    // It works again as soon as there is a consumer.
    let error = soon(source.receive(1)).await.unwrap_err();
    assert!(error.to_string().contains("nats consumer add"), "{error}");
    broker.make_consumer("c", json!({})).await;
    broker.publish("x", &[], "one").await;
    assert_eq!(body(&receive_one(&source).await), "one");
}

/// The driver closes the connection when it reads such a header.
#[tokio::test]
async fn a_header_that_is_not_text_does_not_stop_the_others() {
    let broker = Broker::with_stream(json!({})).await;
    broker.make_consumer("c", json!({ "max_deliver": 1, "ack_wait": 1_000_000_000 })).await;
    broker.publish("x", &[], "before").await;
    publish_with_bytes_in_a_header(&broker.url, &broker.subject("x"));
    broker.publish("x", &[], "after").await;
    let source = broker.source().await;
    let (mut bodies, mut given_up) = (Vec::new(), None);
    until("all arrive", async || {
        for delivery in source.receive(1).await.unwrap_or_default() {
            bodies.push(body(&delivery).to_owned());
            if delivery.message.given_up {
                given_up = delivery.message.headers.first().cloned();
            }
            delivery.ack().await.unwrap();
        }
        ["before", "after", "odd"].iter().all(|it| bodies.iter().any(|body| body == it))
    })
    .await;
    assert_eq!(
        &given_up.unwrap().value[..],
        b"\xff",
        "the message is handed over when the server gives up"
    );
}

/// Other clients do not check what they send.
fn publish_with_bytes_in_a_header(url: &str, subject: &str) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("nats://")).unwrap();
    let header = b"NATS/1.0\r\nOdd: \xff\r\n\r\n";
    write!(stream, "CONNECT {{\"verbose\":false,\"headers\":true}}\r\n").unwrap();
    write!(stream, "HPUB {subject} {} {}\r\n", header.len(), header.len() + 3).unwrap();
    stream.write_all(header).unwrap();
    stream.write_all(b"odd\r\nPING\r\n").unwrap();
    let mut replies = String::new();
    while !replies.contains("PONG") {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{replies}");
        replies.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    assert!(!replies.contains("-ERR"), "{replies}");
}

#[tokio::test]
async fn limits_of_the_consumer_are_kept() {
    let limits = json!({ "max_batch": 2, "max_expires": 1_500_000_000_u64 });
    let broker = Broker::with_consumer(limits).await;
    let source = broker.source().await;
    let start = Instant::now();
    let (received, ()) = tokio::join!(soon(source.receive(100)), async {
        sleep(Duration::from_millis(1_800)).await;
        broker.publish_numbers(0..3).await;
    });
    assert!(start.elapsed() > Duration::from_millis(1_500), "one request has expired");
    let first = received.unwrap();
    assert_eq!(receive(&source, 3 - first.len(), 100).await.len() + first.len(), 3);
}
