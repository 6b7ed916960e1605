//! Large outcomes, many records.

use std::sync::Arc;

use semel_core::{
    Claim, CompleteRequest, Completion, ListQuery, OnLostOwner, Outcome, Purged, Span, State, Store,
};
use semel_store_postgres::PostgresStore;

use crate::common::{Schema, claim_of, granted, key};

#[tokio::test]
async fn large_outcomes_come_back_one_by_one_and_in_batches() {
    let schema = Schema::new();
    let store = schema.store().await;
    let sizes = [1, 60_000, 70_000, 1 << 20, PostgresStore::MAX_OUTCOME_BYTES - 1024, 70_000];
    let mut done = Vec::new();
    for size in sizes {
        let lease = granted(&store, &claim_of(key())).await;
        let body: Vec<u8> = (0..size).map(|_| rand::random()).collect();
        done.push(CompleteRequest {
            owner: lease.owner,
            outcome: Arc::new(Outcome::success(body)),
        });
    }
    for recorded in store.complete_many(&done).await {
        assert_eq!(recorded.unwrap(), Completion::Recorded);
    }
    let claims: Vec<_> = done.iter().map(|done| claim_of(done.owner.key)).collect();
    for (claim, done) in store.claim_many(&claims).await.into_iter().zip(&done) {
        let Claim::Replay(replay) = claim.unwrap() else { panic!("it is not recorded") };
        assert!(replay.outcome == done.outcome, "{} bytes differ", done.outcome.size());
    }
    let listed = store.list(&ListQuery::default()).await.unwrap();
    assert_eq!(listed.len(), sizes.len());
    for record in listed {
        let done = done.iter().find(|done| done.owner.key == record.key).unwrap();
        assert!(record.outcome.as_ref() == Some(&done.outcome));
    }
}

/// Of small and of large outcomes.
#[tokio::test]
async fn unreadable_records_do_not_shorten_a_page_of_a_list() {
    let schema = Schema::new();
    let store = schema.store().await;
    let mut keys = Vec::new();
    for size in [1, 70_000, 1, 70_000, 1, 1] {
        let lease = granted(&store, &claim_of(key())).await;
        let outcome = Arc::new(Outcome::success(vec![b'a'; size]));
        store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
        keys.push(lease.owner.key);
    }
    for unreadable in &keys[..2] {
        let damage = "UPDATE {t} SET outcome_format = 99 WHERE key_hash = decode('{k}', 'hex')";
        schema.sql(&damage.replace("{k}", &unreadable.to_hex())).await;
    }
    let mut readable = keys.split_off(2);
    readable.sort_unstable();
    let page = async |after| {
        let page = store.list(&ListQuery { after, limit: 3, ..ListQuery::default() }).await;
        page.unwrap().into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(page(None).await, readable[..3]);
    assert_eq!(page(Some(readable[2])).await, readable[3..]);
}

#[tokio::test]
async fn a_purge_keeps_to_its_limit() {
    let schema = Schema::new();
    let store = schema.store().await;
    let claims: Vec<_> = (0..300).map(|_| claim_of(key())).collect();
    store.claim_many(&claims).await.into_iter().for_each(|claim| drop(claim.unwrap()));
    schema.sql("UPDATE {t} SET expires_at = now() - interval '1 second'").await;
    assert_eq!(store.purge(200).await.unwrap(), Purged { deleted: 200, held: 0 });
    assert_eq!(store.purge(200).await.unwrap(), Purged { deleted: 100, held: 0 });
    assert_eq!(store.stats().await.unwrap().records, 0);
}

#[tokio::test]
async fn times_beyond_the_servers_range_never_expire() {
    let schema = Schema::new();
    let store = schema.store().await;
    for (on_lost_owner, span) in [
        (OnLostOwner::Rerun, u64::MAX),
        (OnLostOwner::Hold, u64::MAX),
        (OnLostOwner::Rerun, i64::MAX.unsigned_abs()),
        (OnLostOwner::Rerun, 1_000 * 365 * 86_400_000),
    ] {
        let mut request = claim_of(key());
        let span = Span::from_millis(span);
        request.terms.on_lost_owner = on_lost_owner;
        (request.terms.lease, request.terms.retention) = (span, span);
        request.terms.failure_retention = span;
        let lease = granted(&store, &request).await;
        let outcome = Arc::new(Outcome::failure("declined", "no funds"));
        store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
        let read = store.get(&request.key).await.unwrap().unwrap();
        assert_eq!(
            (read.record.state, read.record.terms.on_lost_owner),
            (State::Completed, on_lost_owner)
        );
        assert!(read.record.expires_at.unwrap() > read.at);
    }
    assert_eq!(store.purge(100).await.unwrap(), Purged::default());
}
