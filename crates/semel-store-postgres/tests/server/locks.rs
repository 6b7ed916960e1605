//! Locks and conflicts with others: tried again a few times, then told.

use std::{sync::Arc, time::Duration};

use semel_core::{Claim, CompleteRequest, Completion, ErrorKind, Outcome, Store};

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
async fn a_lost_conflict_is_tried_again() {
    let schema = Schema::new();
    let store = schema.store().await;
    for code in ["40001", "40P01", "55P03"] {
        fail_inserts(&schema, code, 2).await;
        granted(&store, &claim_of(key())).await;
        assert_eq!(
            schema.number(&format!("SELECT last_value FROM {}.tries", schema.name)).await,
            3
        );
    }
}

#[tokio::test]
async fn a_conflict_that_does_not_end_is_told() {
    let schema = Schema::new();
    let store = schema.store().await;
    for (code, kind) in [
        ("40001", ErrorKind::Unavailable),
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

#[tokio::test]
async fn a_record_that_somebody_locked_is_waited_for_and_not_for_ever() {
    let schema = Schema::new();
    let store = schema.builder().lock_timeout(Duration::from_millis(100)).connect().await.unwrap();
    let lease = granted(&store, &claim_of(key())).await;
    let complete =
        CompleteRequest { owner: lease.owner, outcome: Arc::new(Outcome::success("done")) };

    let mut other = schema.client().await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute(&schema.named("SELECT FROM {t} FOR UPDATE")).await.unwrap();
    let error = store.complete(&complete).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("55P03"), "{error}");
    assert!(
        matches!(store.claim(&claim_of(key())).await.unwrap(), Claim::Granted(_)),
        "others go on"
    );

    let (completed, ()) = tokio::join!(store.complete(&complete), async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        lock.rollback().await.unwrap();
    });
    assert_eq!(completed.unwrap(), Completion::Recorded);
}
