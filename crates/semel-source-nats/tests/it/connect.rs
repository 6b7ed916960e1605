//! What a source says about servers, streams and consumers that are not as they should be.

use async_nats::ConnectOptions;
use semel_consumer::Source;
use semel_core::ErrorKind;
use semel_servers::{NATS, Running, free_port};
use semel_source_nats::NatsSource;
use serde_json::json;

use crate::common::{Broker, body, receive_one, shared, unique};

#[tokio::test]
async fn a_missing_stream_is_named_with_the_fix() {
    let stream = unique("MISSING");
    for query in ["", "?create=true"] {
        let url = format!("{}/{stream}/c{query}", shared());
        let error = NatsSource::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&format!("nats stream add {stream}")), "{error}");
    }
}

#[tokio::test]
async fn a_missing_consumer_is_named_with_the_fix_and_made_on_demand() {
    let broker = Broker::with_stream(json!({})).await;
    broker.publish("a.1", &[], "one").await;
    broker.publish("b.1", &[], "two").await;
    let error = NatsSource::connect(&broker.source_url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("nats consumer add") && text.contains("?create=true"), "{text}");

    let url = format!(
        "{}?create=true&filter={}&ack-wait=7s",
        broker.source_url(),
        broker.subject("b.%3E")
    );
    let source = NatsSource::connect(&url).await.unwrap();
    let config = broker.consumer_info().await["config"].clone();
    assert_eq!(config["ack_policy"], "explicit");
    assert_eq!(config["max_deliver"], -1);
    assert_eq!(config["ack_wait"], 7_000_000_000_u64);
    assert_eq!(source.info().ack_deadline.unwrap().as_secs(), 7);
    assert_eq!(source.info().name, format!("nats {}/c", broker.stream));
    let delivery = receive_one(&source).await;
    assert_eq!(body(&delivery), "two");
    delivery.ack().await.unwrap();
    source.close().await.unwrap();

    // It exists now, and goes on where it was.
    broker.publish("b.2", &[], "three").await;
    let source = NatsSource::connect(&url).await.unwrap();
    assert_eq!(body(&receive_one(&source).await), "three");
}

#[tokio::test]
async fn a_new_consumer_may_have_several_filters() {
    let broker = Broker::with_stream(json!({})).await;
    for subject in ["a", "b", "c"] {
        broker.publish(subject, &[], subject).await;
    }
    let filters = [broker.subject("a"), broker.subject("c")];
    let source = broker.builder().create(true).filter_subjects(filters).connect().await.unwrap();
    assert_eq!(body(&receive_one(&source).await), "a");
    assert_eq!(body(&receive_one(&source).await), "c");
    assert_eq!(source.lag().await.unwrap(), Some(0));
}

#[tokio::test]
async fn a_consumer_that_cannot_be_pulled_from_is_refused() {
    let broker = Broker::with_consumer(json!({ "deliver_subject": unique("out") })).await;
    let error = NatsSource::connect(&broker.source_url()).await.unwrap_err();
    assert!(error.to_string().contains("pull consumer"), "{error}");

    let broker =
        Broker::with_consumer(json!({ "priority_groups": ["a"], "priority_policy": "overflow" }))
            .await;
    let error = NatsSource::connect(&broker.source_url()).await.unwrap_err();
    assert!(error.to_string().contains("priority groups"), "{error}");
}

#[tokio::test]
async fn a_password_is_needed_and_never_shown() {
    let server = Running::start(&NATS.args(["--user", "semel", "--pass", "right"])).unwrap();
    let at = |login: &str| format!("nats://{login}127.0.0.1:{}", server.port());
    let options = ConnectOptions::with_user_and_password("semel".into(), "right".into());
    let client = options.connect(server.url()).await.unwrap();
    let broker = Broker::over(client, &at("semel:right@"), json!({})).await;
    let source = broker.builder().create(true).connect().await.unwrap();
    assert!(!format!("{source:?} {:?} {:?}", source.info(), broker.builder()).contains("right"));
    for login in ["semel:canary@", ":canary@", ""] {
        let error =
            NatsSource::connect(&format!("{}/{}/c", at(login), broker.stream)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("password"), "{error}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_serve_is_explained() {
    let url = format!("nats://:canary@127.0.0.1:{}/S/c", free_port().unwrap());
    let error = NatsSource::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("host and port"), "{error}");
    assert!(!format!("{error:?}").contains("canary"), "{error:?}");
}

#[tokio::test]
async fn a_connection_of_the_caller_stays_open() {
    let broker = Broker::with_consumer(json!({})).await;
    let builder = NatsSource::from_client(broker.client.clone(), broker.stream.as_str(), "c");
    let source = builder.connect().await.unwrap();
    broker.publish("x", &[], "one").await;
    receive_one(&source).await.ack().await.unwrap();
    source.close().await.unwrap();
    assert!(source.receive(1).await.unwrap().is_empty(), "a closed source has ended");
    assert_eq!(broker.unacknowledged().await, 0);
}

#[tokio::test]
async fn the_domain_of_a_jetstream_can_be_named() {
    let config = format!("{}/{}.conf", env!("CARGO_TARGET_TMPDIR"), unique("domain"));
    std::fs::write(&config, "jetstream { domain: hub }").unwrap();
    let server = Running::start(&NATS.args(["--config", &config])).unwrap();
    std::fs::remove_file(&config).unwrap();
    let broker = Broker::on(server.url(), json!({})).await;
    broker.make_consumer("c", json!({})).await;
    broker.publish_numbers(0..2).await;
    let at = |domain: &str| format!("{}?domain={domain}", broker.source_url());
    let source = NatsSource::connect(&at("hub")).await.unwrap();
    receive_one(&source).await.ack().await.unwrap();
    let builder = NatsSource::from_client(broker.client.clone(), broker.stream.as_str(), "c");
    let other = builder.clone().domain("hub").connect().await.unwrap();
    receive_one(&other).await.ack().await.unwrap();
    assert_eq!(broker.unacknowledged().await, 0);
    for wrong in [
        NatsSource::connect(&at("elsewhere")).await.unwrap_err(),
        builder.domain("elsewhere").connect().await.unwrap_err(),
    ] {
        assert_eq!(wrong.kind(), ErrorKind::Unavailable);
        assert!(wrong.to_string().contains("no JetStream answers"), "{wrong}");
    }
}
