//! The bucket: unfit settings, its capacity, and a bucket that was deleted.

use semel_core::{Claim, ClaimRequest, Completion, ErrorKind, Level, Nonce, Store};
use semel_servers::{NATS, Running};
use semel_store_nats::NatsStore;
use serde_json::json;

use crate::{
    common::{LONG, completion, granted, request, shared, unique, until},
    jetstream::{api_request, make_bucket},
    reply_proxy::ReplyProxy,
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
        let is_reported = |level, fix: &str| {
            findings.iter().any(|it| it.level == level && format!("{it:?}").contains(fix))
        };
        assert!(is_reported(Level::Bad, fix), "{findings:?}");
        api_request(&shared(), &format!("STREAM.DELETE.KV_{bucket}"), json!({})).await;
    }
}

#[tokio::test]
async fn a_bucket_with_another_number_of_replicas_is_refused() {
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
async fn a_store_that_skips_setup_makes_no_bucket() {
    let url = format!("{}/{}", shared(), unique("no-setup"));
    let findings = NatsStore::builder(&url).checks().await.unwrap();
    assert!(findings.iter().any(|it| it.what.contains("no bucket")), "{findings:?}");
    let error = NatsStore::builder(&url).skip_setup(true).connect().await.unwrap_err();
    assert!(error.to_string().contains("no bucket"), "{error}");
    NatsStore::connect(&url).await.unwrap();
    NatsStore::builder(&url).skip_setup(true).connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_bucket_refuses_new_keys_and_still_replays_old_ones() {
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
    let full = full.expect("the bucket becomes full");
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    assert!(full.to_string().contains("max_bytes"), "{full}");
    let reply = store.claim(&ClaimRequest { nonce: Nonce::random(), ..first }).await.unwrap();
    assert!(matches!(reply, Claim::Replay(_)), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_bucket_has_capacity_to_complete_granted_claims() {
    let bucket = unique("filled");
    make_bucket(&shared(), &bucket, json!({ "max_bytes": 20_000 })).await;
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let owner = granted(&store, &request(LONG)).await.owner;
    let full = loop {
        match store.claim(&request(LONG)).await {
            Ok(reply) => assert!(matches!(reply, Claim::Granted(_)), "{reply:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    let reply = store.complete(&completion(owner, &"done".repeat(200))).await;
    assert_eq!(reply.unwrap(), Completion::Recorded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_works_with_the_settings_for_an_old_one() {
    let url = format!("{}/{}?old-server-max-age=36h", shared(), unique("old"));
    let (store, first) = (NatsStore::connect(&url).await.unwrap(), request(LONG));
    let owner = granted(&store, &first).await.owner;
    assert_eq!(store.complete(&completion(owner, "done")).await.unwrap(), Completion::Recorded);
    assert!(store.lead(LONG).await.unwrap());
    store.forget(&first.key).await.unwrap();
    assert_eq!(store.get(&first.key).await.unwrap(), None);
}

/// The records of a deleted bucket are unknown, and it may be restored.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_bucket_is_an_error_and_not_an_empty_bucket() {
    let bucket = unique("gone");
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let first = request(LONG);
    let owner = granted(&store, &first).await.owner;
    api_request(&shared(), &format!("STREAM.DELETE.KV_{bucket}"), json!({})).await;
    for error in [
        store.get(&first.key).await.map(drop).unwrap_err(),
        store.complete(&completion(owner, "done")).await.map(drop).unwrap_err(),
        store.claim(&request(LONG)).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("knows no such bucket"), "{error}");
    }
}

/// A server that lost its data counts revisions from one again, so a revision may be another claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_after_a_lost_connection_reads_before_it_writes() {
    let server = Running::start(&NATS).unwrap();
    let (url, first) = (server.url(), request(LONG));
    let proxy = ReplyProxy::start(server.port()).await;
    let store = NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap();
    let owner = granted(&store, &first).await.owner;
    api_request(url, "STREAM.DELETE.KV_ids", json!({})).await;
    let other = NatsStore::connect(&format!("{url}/ids")).await.unwrap();
    let anew = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    granted(&other, &anew).await;
    proxy.cut();
    until("the store is connected again", async || store.get(&first.key).await.is_ok()).await;
    let reply = store.complete(&completion(owner, "done")).await.unwrap();
    assert!(!matches!(reply, Completion::Recorded), "it replaced the claim of another owner");
}
