//! Locks and conflicts with other transactions: tried again a few times, then an error.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, ErrorKind, KeyHash, Lease, Outcome,
    RenewRequest, Renewal, Store,
};
use semel_store_postgres::PostgresStore;
use tokio_postgres::Client;

use crate::common::{Schema, claim_of, granted, key};

/// The next `times` inserts fail with `code`. A sequence counts them, since it outlives a rollback.
async fn fail_inserts(schema: &Schema, code: &str, times: u32) {
    let fail = "
        DROP SEQUENCE IF EXISTS {s}.tries; CREATE SEQUENCE {s}.tries;
        CREATE OR REPLACE FUNCTION {s}.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('{s}.tries') <= {times} THEN RAISE EXCEPTION 'made up' USING ERRCODE = '{code}'; END IF;
          RETURN NEW;
        END $$;
        CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION {s}.fail()";
    let fail = fail.replace("{s}", &schema.name).replace("{code}", code);
    schema.sql(&fail.replace("{times}", &times.to_string())).await;
}

#[tokio::test]
async fn a_conflict_is_tried_again() {
    let schema = Schema::new();
    let store = schema.store().await;
    // After a lock, a probe insert finds out whether it is still there.
    for (code, tries) in [("40001", 3), ("40P01", 3), ("23505", 3), ("55P03", 4)] {
        fail_inserts(&schema, code, 2).await;
        granted(&store, &claim_of(key())).await;
        let tried = format!("SELECT last_value FROM {}.tries", schema.name);
        assert_eq!(schema.number(&tried).await, tries, "{code}");
    }
}

#[tokio::test]
async fn a_conflict_that_does_not_end_is_an_error() {
    let schema = Schema::new();
    let store = schema.store().await;
    for (code, kind) in [
        ("40001", ErrorKind::Unavailable),
        ("55P03", ErrorKind::Unavailable),
        ("53100", ErrorKind::Full),
        ("53200", ErrorKind::Full),
        ("P0001", ErrorKind::Unavailable),
    ] {
        fail_inserts(&schema, code, 1_000_000).await;
        let error = store.claim(&claim_of(key())).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(code), "{error}");
    }
    assert!(schema.number(&format!("SELECT last_value FROM {}.tries", schema.name)).await < 10);
    fail_inserts(&schema, "40001", 0).await;
    granted(&store, &claim_of(key())).await;
}

const SOON: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_secs(60);

fn done(lease: &Lease) -> CompleteRequest {
    CompleteRequest { owner: lease.owner, outcome: Arc::new(Outcome::success("done")) }
}

/// With one connection, so that every call has to wait for a blocked worker.
async fn store(schema: &Schema, lock_timeout: Duration) -> PostgresStore {
    schema.builder().connections(1).lock_timeout(lock_timeout).connect().await.unwrap()
}

fn claims(count: usize) -> Vec<ClaimRequest> {
    (0..count).map(|_| claim_of(key())).collect()
}

async fn leases(store: &PostgresStore, count: usize) -> Vec<Lease> {
    let claimed = store.claim_many(&claims(count)).await.into_iter().map(Result::unwrap);
    let lease = |claim| match claim {
        Claim::Granted(lease) => lease,
        other => panic!("not granted but {other:?}"),
    };
    claimed.map(lease).collect()
}

/// Opens a transaction and leaves it open. `{k}` in the statement stands for the record of `key`.
async fn lock(schema: &Schema, statement: &str, key: &KeyHash) -> Client {
    let client = schema.client().await;
    let of_key = format!("key_hash = '\\x{}'", key.to_hex());
    let statement = schema.named(&statement.replace("{k}", &of_key));
    client.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
    client
}

/// The same with an uncommitted insert: the record is not visible, but an insert of the same key has to wait for it.
/// Copies an existing record.
async fn insert(schema: &Schema, key: &KeyHash) -> Client {
    let insert = "INSERT INTO {t} SELECT (copy).* FROM (
        SELECT jsonb_populate_record(t, jsonb_build_object('key_hash', '\\x{hex}')) AS copy FROM {t} t
        LIMIT 1) AS made";
    lock(schema, &insert.replace("{hex}", &key.to_hex()), key).await
}

async fn unlock(client: &Client) {
    client.batch_execute("ROLLBACK").await.unwrap();
}

fn assert_locked<T: std::fmt::Debug>(answer: Result<T, semel_core::Error>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("55P03"), "{error}");
}

#[tokio::test]
async fn a_locked_record_is_waited_for_up_to_the_lock_timeout() {
    let schema = Schema::new();
    let (hasty, patient) = (store(&schema, SOON).await, store(&schema, LATE).await);
    let lease = granted(&hasty, &claim_of(key())).await;
    let done = done(&lease);
    let locked = lock(&schema, "SELECT FROM {t} WHERE {k} FOR UPDATE", &lease.owner.key).await;
    assert_locked(hasty.complete(&done).await);
    granted(&hasty, &claim_of(key())).await;
    let (completed, ()) = tokio::join!(patient.complete(&done), async {
        assert_locked(hasty.complete(&done).await);
        unlock(&locked).await;
    });
    assert_eq!(completed.unwrap(), Completion::Recorded);
}

#[tokio::test]
async fn calls_do_not_wait_for_the_locked_record_of_another_call() {
    let schema = Schema::new();
    let store = store(&schema, LATE).await;
    let leases = leases(&store, 100).await;
    let locked = lock(&schema, "SELECT FROM {t} WHERE {k} FOR UPDATE", &leases[50].owner.key).await;
    let (held_up, request) = (store.clone(), done(&leases[50]));
    let held_up = tokio::spawn(async move { held_up.complete(&request).await });
    for (place, lease) in leases.iter().enumerate().filter(|(place, _)| *place != 50) {
        let request = RenewRequest::new(lease.owner, LATE);
        assert_eq!(store.renew(&request).await.unwrap(), Renewal::Extended, "{place}");
        assert_eq!(store.complete(&done(lease)).await.unwrap(), Completion::Recorded, "{place}");
    }
    assert!(!held_up.is_finished(), "it did not wait");
    unlock(&locked).await;
    assert_eq!(held_up.await.unwrap().unwrap(), Completion::Recorded);
}

#[tokio::test]
async fn only_the_locked_records_of_a_batch_fail() {
    let schema = Schema::new();
    let store = store(&schema, LATE).await;
    let leases = leases(&store, 100).await;
    let locked =
        lock(&schema, "UPDATE {t} SET dirty = dirty WHERE {k}", &leases[7].owner.key).await;
    let other = lock(&schema, "DELETE FROM {t} WHERE {k}", &leases[93].owner.key).await;
    let requests: Vec<_> = leases.iter().map(done).collect();
    for (place, answer) in store.complete_many(&requests).await.into_iter().enumerate() {
        match place {
            7 | 93 => assert_locked(answer),
            _ => assert_eq!(answer.unwrap(), Completion::Recorded, "{place}"),
        }
    }
    unlock(&locked).await;
    unlock(&other).await;
    for answer in store.complete_many(&requests).await {
        assert_eq!(answer.unwrap(), Completion::Recorded);
    }
}

#[tokio::test]
async fn only_the_key_of_an_uncommitted_insert_fails_in_a_batch() {
    let schema = Schema::new();
    let store = store(&schema, LATE).await;
    leases(&store, 1).await;
    let claims = claims(100);
    let locked = insert(&schema, &claims[61].key).await;
    for (place, answer) in store.claim_many(&claims).await.into_iter().enumerate() {
        match place {
            61 => assert_locked(answer),
            _ => assert!(matches!(answer.unwrap(), Claim::Granted(_)), "{place}"),
        }
    }
    unlock(&locked).await;
    granted(&store, &claims[61]).await;
}

/// The lock is not visible, so the store narrows it down while other calls wait. The best of ten tries counts: a busy
/// machine may delay some of them, but a wait that the store itself causes is part of all.
#[tokio::test]
async fn calls_wait_only_briefly_for_an_uncommitted_insert_of_another_key() {
    let schema = Schema::new();
    let store = store(&schema, LATE).await;
    leases(&store, 1).await;
    let mut best = LATE;
    for _ in 0..10 {
        let (claims, behind) = (claims(100), claim_of(key()));
        let locked = insert(&schema, &claims[61].key).await;
        let begun = Instant::now();
        // The next call waits for the batch, and not for the retries of the locked key.
        let (claimed, waited) = tokio::join!(store.claim_many(&claims), async {
            granted(&store, &behind).await;
            begun.elapsed()
        });
        assert_eq!(claimed.iter().filter(|claim| claim.is_err()).count(), 1);
        best = best.min(waited);
        unlock(&locked).await;
    }
    assert!(best < SOON, "{best:?}");
}

/// A duplicate changes nothing, and needs no lock.
#[tokio::test]
async fn a_claim_of_a_locked_record_gets_its_state() {
    let schema = Schema::new();
    let store = store(&schema, LATE).await;
    let leases = leases(&store, 2).await;
    store.complete(&done(&leases[1])).await.unwrap();
    let update = "UPDATE {t} SET dirty = dirty WHERE {k}";
    let (running, completed) = (leases[0].owner.key, leases[1].owner.key);
    let _running = lock(&schema, update, &running).await;
    let _completed = lock(&schema, update, &completed).await;
    assert!(matches!(store.claim(&claim_of(running)).await.unwrap(), Claim::Busy { .. }));
    assert!(matches!(store.claim(&claim_of(completed)).await.unwrap(), Claim::Replay(_)));
    let both = store.claim_many(&[claim_of(running), claim_of(completed)]).await;
    assert!(matches!(both[0], Ok(Claim::Busy { .. })), "{both:?}");
    assert!(matches!(both[1], Ok(Claim::Replay(_))), "{both:?}");
    assert!(store.get(&running).await.unwrap().is_some());
}

#[tokio::test]
async fn a_locked_table_is_waited_for_up_to_the_lock_timeout() {
    let schema = Schema::new();
    let (hasty, patient) = (store(&schema, SOON).await, store(&schema, LATE).await);
    let (claim, lease) = (claim_of(key()), granted(&hasty, &claim_of(key())).await);
    let table = "LOCK TABLE {t} IN ACCESS EXCLUSIVE MODE";
    let locked = lock(&schema, table, &claim.key).await;
    assert_locked(hasty.get(&lease.owner.key).await);
    assert_locked(hasty.complete(&done(&lease)).await);
    let (claimed, ()) = tokio::join!(patient.claim(&claim), async {
        assert_locked(hasty.claim(&claim).await);
        unlock(&locked).await;
    });
    assert!(matches!(claimed.unwrap(), Claim::Granted(_)));
}

/// As while an index is created: reads succeed, and no single record is locked.
#[tokio::test]
async fn a_table_locked_against_changes_is_waited_for_up_to_the_lock_timeout() {
    let schema = Schema::new();
    let store = store(&schema, SOON).await;
    let (claims, leases) = (claims(100), leases(&store, 100).await);
    let done: Vec<_> = leases.iter().map(done).collect();
    let locked = lock(&schema, "LOCK TABLE {t} IN SHARE MODE", &claims[0].key).await;
    store.claim_many(&claims).await.into_iter().for_each(assert_locked);
    store.complete_many(&done).await.into_iter().for_each(assert_locked);
    assert!(store.get(&leases[0].owner.key).await.unwrap().is_some());
    let busy = store.claim(&claim_of(leases[0].owner.key)).await.unwrap();
    assert!(matches!(busy, Claim::Busy { .. }), "{busy:?}");
    unlock(&locked).await;
    for answer in store.claim_many(&claims).await {
        assert!(matches!(answer.unwrap(), Claim::Granted(_)));
    }
    for answer in store.complete_many(&done).await {
        assert_eq!(answer.unwrap(), Completion::Recorded);
    }
}
