//! Each driver as its users use it: with its own statements, in tasks, and in transactions of the caller.

use semel_core::Outcome;
use semel_inbox::{Claimed, Done, InboxVariant};
use sqlx::{Connection, Row};

use crate::fixture::{InboxFixture, event};

#[tokio::test]
async fn sqlx_handlers_write_through_sqlx_and_run_in_tasks() {
    let fixture = InboxFixture::over_sqlx().await;
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let insert = fixture.effect(&event);
    let task = tokio::spawn(async move {
        inbox
            .process(&event, async move |tx, context| {
                sqlx::query(sqlx::AssertSqlSafe(insert.clone())).execute(&mut **tx).await?;
                Ok(context.downstream_key().to_string())
            })
            .await
    });
    let Ok(Done::Now(key)) = task.await.unwrap() else { panic!("it did not run") };
    assert_eq!((key.len(), fixture.count("effects").await), (36, 1));
}

/// What the inner transaction rolls back is gone, and the rest commits with the event.
#[tokio::test]
async fn a_transaction_within_a_handler_of_sqlx_is_a_savepoint() {
    let fixture = InboxFixture::over_sqlx().await;
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let insert = || sqlx::query(sqlx::AssertSqlSafe(fixture.effect(&event)));
    let done = inbox.process(&event, async |tx, _| {
        for keep in [true, false] {
            let mut inner = tx.begin().await?;
            insert().execute(&mut *inner).await?;
            if keep {
                inner.commit().await?;
            }
        }
        Ok(())
    });
    assert_eq!(done.await.unwrap(), Done::Now(()));
    assert_eq!(fixture.effects_and_records(&event).await, (1, 1));
}

#[tokio::test]
async fn tokio_postgres_handlers_write_through_tokio_postgres_and_run_in_tasks() {
    let fixture = InboxFixture::over_deadpool().await;
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let insert = fixture.effect(&event);
    let task = tokio::spawn(async move {
        inbox.process(&event, async move |tx, _| Ok(tx.execute(insert.as_str(), &[]).await?)).await
    });
    assert_eq!(task.await.unwrap().unwrap(), Done::Now(1));
    assert_eq!(fixture.count("effects").await, 1);
}

#[tokio::test]
async fn a_transaction_of_sqlx_claims_and_records() {
    let fixture = InboxFixture::over_sqlx().await;
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let mut tx = fixture.pool.begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = '1234ms'").execute(&mut *tx).await.unwrap();
    let Claimed::New(claim) = inbox.claim_in(&mut tx, &event).await.unwrap() else { panic!() };
    let timeout = sqlx::query("SHOW lock_timeout").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(timeout.get::<String, _>(0), "1234ms", "the caller's own timeout is restored");
    let mut copy = fixture.pool.begin().await.unwrap();
    assert!(matches!(inbox.claim_in(&mut copy, &event).await.unwrap(), Claimed::Busy));
    copy.rollback().await.unwrap();
    claim.record(&mut tx, &Outcome::json(&"done").unwrap()).await.unwrap();
    tx.commit().await.unwrap();
    let mut late = fixture.pool.begin().await.unwrap();
    let Claimed::Duplicate(Some(outcome)) = inbox.claim_in(&mut *late, &event).await.unwrap()
    else {
        panic!("a committed event is a duplicate")
    };
    assert_eq!(outcome.decode::<String>().unwrap(), "done");
}

#[tokio::test]
async fn a_transaction_of_tokio_postgres_claims_and_records() {
    let fixture = InboxFixture::over_deadpool().await;
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let mut client = fixture.client().await;
    let mut tx = client.transaction().await.unwrap();
    let Claimed::New(claim) = inbox.claim_in(&mut tx, &event).await.unwrap() else { panic!() };
    claim.record(&mut tx, &Outcome::failure("no", "never")).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let Claimed::New(claim) = inbox.claim_in(&mut tx, &event).await.unwrap() else {
        panic!("what was rolled back is new")
    };
    claim.record(&mut tx, &Outcome::failure("no", "never")).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let Claimed::Duplicate(Some(outcome)) = inbox.claim_in(&mut tx, &event).await.unwrap() else {
        panic!("a committed event is a duplicate")
    };
    assert_eq!(outcome.as_failure().unwrap().kind, "no");
    drop(tx);
    assert_eq!(fixture.count("processed_events WHERE failed").await, 1);
}

#[tokio::test]
async fn record_reports_a_failed_statement_that_the_handler_hid() {
    let fixture = InboxFixture::over_deadpool().await;
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let mut client = fixture.client().await;
    let mut tx = client.transaction().await.unwrap();
    let Claimed::New(claim) = inbox.claim_in(&mut tx, &event).await.unwrap() else { panic!() };
    let _ = tx.batch_execute("SELECT 1 / 0").await;
    let nothing = Outcome::json(&()).unwrap();
    claim
        .record(&mut tx, &nothing)
        .await
        .expect_err("COMMIT would be a rollback that reports success");
}

#[tokio::test]
async fn batches_run_in_tasks() {
    let fixture = InboxFixture::over_sqlx().await;
    let (inbox, events) = (fixture.inbox(InboxVariant::Full).await, vec![event(), event()]);
    let effects = fixture.schema.name.clone();
    let task = tokio::spawn(async move {
        let each = inbox.process_each(&events, async move |tx, event, _| {
            let insert = format!("INSERT INTO {effects}.effects VALUES ('{}')", event.id());
            sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&mut **tx).await?;
            Ok(())
        });
        let each = each.await.unwrap();
        let all = inbox.process_batch(&events, async move |_, _| Ok(())).await.unwrap();
        (each, all)
    });
    let (each, all) = task.await.unwrap();
    assert!(each.iter().all(|done| matches!(done, Ok(Done::Now(())))), "{each:?}");
    assert!(all.iter().all(|done| matches!(done, Ok(Done::Duplicate(_)))), "{all:?}");
}
