//! Outcomes come back byte for byte, in the replay and in the record.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::{Body, Claim, Head, Header, Labels, Outcome, Store};

use crate::{
    Time,
    operation::{TestOperation, success},
};

/// The largest body tried.
const LARGE: usize = 1024 * 1024;

async fn comes_back(store: &dyn Store, outcome: Outcome) {
    let (operation, outcome) = (TestOperation::new(store), Arc::new(outcome));
    operation.completed(&outcome).await;
    let claim = operation.claim().await;
    let Claim::Replay(replay) = claim else { panic!("recorded, but answered {claim:?}") };
    // Not `assert_eq!`: a message must not print a payload.
    assert!(replay.outcome == outcome, "the replay of {outcome:?} is {:?}", replay.outcome);
    assert!(operation.record().await.outcome == Some(outcome), "the record holds another outcome");
}

/// Bodies are bytes: every value, no text encoding.
pub async fn a_binary_body_comes_back(store: &dyn Store, _: &dyn Time) {
    comes_back(store, Outcome::success((0..=255).collect::<Vec<u8>>())).await;
    comes_back(store, Outcome::success(&b"\0\0\0"[..])).await;
    comes_back(store, Outcome::success(&b"' \" \\ \r\n \xc3\x28 \xff"[..])).await;
}

/// An empty body is a body.
pub async fn an_empty_body_comes_back(store: &dyn Store, _: &dyn Time) {
    comes_back(store, Outcome::success(Bytes::new())).await;
}

/// Status, content type, headers and trailers come back: repeated ones, in order, and not only UTF-8.
pub async fn a_head_comes_back(store: &dyn Store, _: &dyn Time) {
    let header = |name: &str, value: &'static [u8]| Header {
        name: name.to_owned(),
        value: Bytes::from_static(value),
    };
    let head = Head {
        status: Some(201),
        content_type: Some("text/plain; charset=\"ü\"".to_owned()),
        headers: vec![
            header("Link", b"<b>"),
            header("link", b"\xff\xfe latin \xe9"),
            header("Link", b"<a>"),
            header("X-Empty", b""),
        ],
        trailers: vec![header("X-Sum", b"1"), header("x-sum", b"\xff")],
    };
    comes_back(store, Outcome::success("made").with_head(head)).await;
    let only_status = Head { status: Some(204), ..Head::default() };
    comes_back(store, Outcome::success(Bytes::new()).with_head(only_status)).await;
}

/// A final failure comes back with its type, message, head and body.
pub async fn a_failure_comes_back(store: &dyn Store, _: &dyn Time) {
    comes_back(store, Outcome::failure("card_declined", "nö, not \"this\" one\0")).await;
    comes_back(store, Outcome::failure("", "")).await;
    let head = Head { status: Some(422), ..Head::default() };
    let body = Body::Kept(Bytes::from_static(b"{}"));
    comes_back(store, Outcome::failure("invalid", "no").with_head(head).with_body(body)).await;
}

/// An outcome whose body was not kept comes back with the length of the body.
pub async fn an_omitted_body_comes_back(store: &dyn Store, _: &dyn Time) {
    for length in [0, 1, u64::from(u32::MAX) + 1] {
        comes_back(store, Outcome::success("").with_body(Body::Omitted { length })).await;
    }
}

/// A large body comes back, up to the largest outcome that the store accepts.
pub async fn a_large_body_comes_back(store: &dyn Store, _: &dyn Time) {
    let empty = Outcome::success(Bytes::new()).size();
    let room = store.info().max_outcome_bytes.saturating_sub(empty).min(LARGE);
    // Random bytes do not compress, equal bytes do. A store may treat them differently.
    let noise: Vec<u8> = (0..room).map(|_| rand::random()).collect();
    comes_back(store, Outcome::success(noise)).await;
    comes_back(store, Outcome::success(vec![b'a'; room])).await;
}

/// Labels come back whole, with empty and non-ASCII parts, also after completion and takeover.
pub async fn labels_come_back(store: &dyn Store, _: &dyn Time) {
    let labels = Labels::new("näme\0space", "", "POST /orders/{id}", "' ; -- \u{1f980}");
    let operation = TestOperation::new(store).labels(labels.clone());
    let owner = operation.owned().await;
    assert!(operation.record().await.labels == Some(labels.clone()), "labels differ in progress");
    operation.complete(owner, &success("done")).await;
    assert!(operation.record().await.labels == Some(labels), "labels differ when completed");
}

/// Digests of the request's parts follow the id in labels. They come back with it, and are no part of it.
pub async fn digests_behind_an_id_come_back(store: &dyn Store, _: &dyn Time) {
    let labels = Labels::new("ns", "", "op", &format!("order-42\u{1f}{}", "0a".repeat(24)));
    let operations = [(); 3].map(|()| TestOperation::new(store).labels(labels.clone()));
    // One claim alone, and two that a store may send as one batch.
    operations[0].owned().await;
    tokio::join!(operations[1].owned(), operations[2].owned());
    for operation in operations {
        let kept = operation.record().await.labels;
        assert!(kept.as_ref() == Some(&labels), "the digests after the id are lost");
        assert_eq!(kept.map(|labels| labels.id().to_owned()).as_deref(), Some("order-42"));
    }
}

/// A record without labels comes back without labels.
pub async fn a_record_without_labels_has_none(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.owned().await;
    assert!(operation.record().await.labels.is_none(), "labels were made up");
}
