//! What the bucket does to the store: its settings, its room, its end.

mod common;
mod jetstream;

use semel_core::{Claim, ClaimRequest, Completion, ErrorKind, Level, Nonce, Store};
use semel_servers::{NATS, Running};
use semel_store_nats::NatsStore;
use serde_json::json;

use self::{
    common::{LONG, completion, granted, proxy::Proxy, request, shared, unique, until},
    jetstream::{ask, make_bucket},
};

#[tokio::test]
async fn an_unfit_bucket_is_refused_with_the_fix() {
    for (fix, change) in [
        ("storage file", json!({ "storage": "memory" })),
        ("discard new", json!({ "discard": "old" })),
        ("history 1", json!({ "max_msgs_per_subject": 5 })),
        ("set allow_msg_ttl", json!({ "allow_msg_ttl": false })),
        ("max_age 3600 s", json!({ "max_age": 3_600_000_000_000_u64 })),
    ] {
        let bucket = unique("unfit");
        make_bucket(&shared(), &bucket, change).await;
        let url = format!("{}/{bucket}", shared());
        let error = NatsStore::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(fix) && error.to_string().contains(&bucket), "{error}");
        let findings = NatsStore::builder(&url).checks().await.unwrap();
        let told = |level, fix: &str| {
            findings.iter().any(|it| it.level == level && format!("{it:?}").contains(fix))
        };
        assert!(told(Level::Bad, fix), "{findings:?}");
        ask(&shared(), &format!("STREAM.DELETE.KV_{bucket}"), json!({})).await;
    }
}

#[tokio::test]
async fn other_copies_than_asked_for_are_refused() {
    let bucket = unique("copies");
    make_bucket(&shared(), &bucket, json!({})).await;
    let url = format!("{}/{bucket}", shared());
    let error = NatsStore::builder(&url).replicas(3).connect().await.unwrap_err();
    assert!(error.to_string().contains("1 copies and not 3"), "{error}");
    let missing = format!("{}/{}", shared(), unique("missing"));
    let error = NatsStore::builder(&missing).replicas(3).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("?replicas="), "{error}");
}

#[tokio::test]
async fn who_only_looks_makes_no_bucket() {
    let url = format!("{}/{}", shared(), unique("looked-at"));
    let findings = NatsStore::builder(&url).checks().await.unwrap();
    assert!(findings.iter().any(|it| it.what.contains("no bucket")), "{findings:?}");
    let error = NatsStore::builder(&url).look_only(true).connect().await.unwrap_err();
    assert!(error.to_string().contains("no bucket"), "{error}");
    NatsStore::connect(&url).await.unwrap();
    NatsStore::builder(&url).look_only(true).connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_bucket_refuses_new_keys_and_still_answers_old_ones() {
    let bucket = unique("full");
    make_bucket(&shared(), &bucket, json!({ "max_bytes": 20_000 })).await;
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let first = request(LONG);
    let owner = granted(&store, &first).await.owner;
    store.complete(&completion(owner, "done")).await.unwrap();
    let mut full = None;
    for _ in 0..200 {
        if let Err(error) = store.claim(&request(LONG)).await {
            full = Some(error);
            break;
        }
    }
    let full = full.expect("it was never full");
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    assert!(full.to_string().contains("max_bytes"), "{full}");
    let said = store.claim(&ClaimRequest { nonce: Nonce::random(), ..first }).await.unwrap();
    assert!(matches!(said, Claim::Replay(_)), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filled_bucket_has_room_to_complete_what_was_granted() {
    let bucket = unique("filled");
    make_bucket(&shared(), &bucket, json!({ "max_bytes": 20_000 })).await;
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let owner = granted(&store, &request(LONG)).await.owner;
    let full = loop {
        match store.claim(&request(LONG)).await {
            Ok(said) => assert!(matches!(said, Claim::Granted(_)), "{said:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    let said = store.complete(&completion(owner, &"done".repeat(200))).await;
    assert_eq!(said.unwrap(), Completion::Recorded);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_old_server_is_asked_for_a_new_one_does_too() {
    let url = format!("{}/{}?old-server-max-age=36h", shared(), unique("old"));
    let (store, first) = (NatsStore::connect(&url).await.unwrap(), request(LONG));
    let owner = granted(&store, &first).await.owner;
    assert_eq!(store.complete(&completion(owner, "done")).await.unwrap(), Completion::Recorded);
    assert!(store.lead(LONG).await.unwrap());
    store.forget(&first.key).await.unwrap();
    assert_eq!(store.get(&first.key).await.unwrap(), None);
}

/// Nobody knows what a bucket held that is gone, and it may come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_gone_is_not_one_that_is_empty() {
    let bucket = unique("gone");
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let first = request(LONG);
    let owner = granted(&store, &first).await.owner;
    ask(&shared(), &format!("STREAM.DELETE.KV_{bucket}"), json!({})).await;
    for error in [
        store.get(&first.key).await.map(drop).unwrap_err(),
        store.complete(&completion(owner, "done")).await.map(drop).unwrap_err(),
        store.claim(&request(LONG)).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("knows no such bucket"), "{error}");
    }
}

/// A server that lost what it had counts anew, so a revision may be another's claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_after_a_lost_connection_reads_before_it_writes() {
    let server = Running::start(&NATS).unwrap();
    let (url, first) = (server.url(), request(LONG));
    let proxy = Proxy::to(server.port()).await;
    let store = NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap();
    let owner = granted(&store, &first).await.owner;
    ask(url, "STREAM.DELETE.KV_ids", json!({})).await;
    let other = NatsStore::connect(&format!("{url}/ids")).await.unwrap();
    let anew = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    granted(&other, &anew).await;
    proxy.cut();
    until("it is connected again", async || store.get(&first.key).await.is_ok()).await;
    let said = store.complete(&completion(owner, "done")).await.unwrap();
    assert!(!matches!(said, Completion::Recorded), "it wrote over another's claim");
}
