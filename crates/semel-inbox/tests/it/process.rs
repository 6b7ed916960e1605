//! One event at a time.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};

use semel_core::WorkError;
use semel_faults::FaultProxy;
use semel_inbox::{
    Done, InboxContext, InboxError, InboxEvent, InboxOptions, InboxPool, InboxTx, InboxVariant,
    PgInbox,
};
use tokio::sync::{Notify, oneshot};

use crate::{
    fixture::{InboxFixture, deadpool_pool, event, event_of_day, sqlx_pool},
    over_pools,
};

over_pools! {
    an_event_takes_effect_once_in_every_variant
    a_duplicate_is_answered_with_the_recorded_value
    a_duplicate_may_only_be_rejected
    after_an_error_nothing_is_written_and_the_next_copy_runs
    a_final_failure_is_recorded_without_its_effects
    a_handler_that_hides_a_failed_statement_commits_nothing
    a_serialisation_failure_is_tried_in_a_fresh_transaction
    a_concurrent_copy_is_busy_and_runs_after_the_first_rolls_back
    a_hundred_duplicates_of_a_slow_handler_block_no_connection
    a_call_that_is_dropped_leaves_nothing_open
    a_panic_leaves_nothing_open
    two_consumers_each_handle_an_event_once
    a_failure_is_not_taken_for_a_success_where_it_cannot_be_recorded
    concurrent_copies_of_a_finished_event_are_all_duplicates
    every_spelling_of_an_id_has_one_downstream_key
    a_call_dropped_at_any_moment_leaves_no_transaction_open
}

async fn an_event_takes_effect_once_in_every_variant<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    for variant in [InboxVariant::Minimal, InboxVariant::Full, InboxVariant::Partitioned] {
        let drop = format!("DROP TABLE IF EXISTS {}.processed_events", fixture.schema.name);
        let client = fixture.client().await;
        client.batch_execute(&drop).await.unwrap();
        let (inbox, event) = (fixture.inbox(variant).await, event_of_day(&client, 0).await);
        for copy in 0..3 {
            let done = inbox
                .process(&event, async |tx, _| Ok(fixture.insert_effect(tx, &event).await?))
                .await
                .unwrap();
            let first = matches!(done, Done::Now(()));
            assert_eq!(first, copy == 0, "{variant:?}: copy {copy} was {done:?}");
        }
        assert_eq!(fixture.effects_and_records(&event).await, (1, 1), "{variant:?}");
    }
}

async fn a_duplicate_is_answered_with_the_recorded_value<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let event = event();
    let long = "profile ".repeat(2000);
    let done = inbox.process(&event, async |_, _| Ok((7, long.clone()))).await.unwrap();
    assert_eq!(done, Done::Now((7, long.clone())));
    let again =
        inbox.process::<(i32, String), _>(&event, async |_, _| panic!("it runs again")).await;
    assert_eq!(again.unwrap(), Done::Duplicate(Some((7, long))));
    let other = inbox.process::<Vec<u8>, _>(&event, async |_, _| panic!("it runs again")).await;
    assert!(matches!(other, Err(InboxError::Unreadable(_))), "{other:?}");
}

async fn a_duplicate_may_only_be_rejected<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let options = InboxOptions { use_idempotency: false, ..InboxOptions::default() };
    let inbox = fixture.builder().options(options).build().await.unwrap();
    let event = event();
    inbox.process(&event, async |_, _| Ok("secret".to_owned())).await.unwrap();
    let again = inbox.process::<String, _>(&event, async |_, _| panic!("it runs again")).await;
    assert_eq!(again.unwrap(), Done::Duplicate(None));
    assert_eq!(fixture.count("processed_events WHERE outcome IS NULL").await, 1);
}

async fn after_an_error_nothing_is_written_and_the_next_copy_runs<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let event = event();
    let failed = inbox
        .process::<(), _>(&event, async |tx, _| {
            fixture.insert_effect(tx, &event).await?;
            Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
        })
        .await;
    assert!(matches!(failed, Err(InboxError::Retry(_))), "{failed:?}");
    assert_eq!(fixture.effects_and_records(&event).await, (0, 0));
    let done =
        inbox.process(&event, async |tx, _| Ok(fixture.insert_effect(tx, &event).await?)).await;
    assert_eq!(done.unwrap(), Done::Now(()));
    assert_eq!(fixture.effects_and_records(&event).await, (1, 1));
}

async fn a_final_failure_is_recorded_without_its_effects<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let (event, runs) = (event(), AtomicU32::new(0));
    for copy in 0..2 {
        let failed = inbox
            .process::<(), _>(&event, async |tx, _| {
                runs.fetch_add(1, SeqCst);
                fixture.insert_effect(tx, &event).await?;
                Err(WorkError::failure("no_such_user", "user 7 does not exist"))
            })
            .await;
        match failed {
            Err(InboxError::Failed { failure, replayed }) => {
                assert_eq!((failure.kind.as_str(), replayed), ("no_such_user", copy == 1));
            }
            other => panic!("copy {copy}: {other:?}"),
        }
    }
    assert_eq!((fixture.effects_and_records(&event).await, runs.into_inner()), ((0, 1), 1));
    // Also when a statement failed, and the transaction with it.
    let event = crate::fixture::event();
    let failed = inbox
        .process::<(), _>(&event, async |tx, _| {
            fixture.insert_effect(tx, &event).await?;
            tx.run("SELECT 1 / 0").await.unwrap_err();
            Err(WorkError::failure("division", "by zero"))
        })
        .await;
    assert!(matches!(failed, Err(InboxError::Failed { replayed: false, .. })), "{failed:?}");
    assert_eq!(fixture.effects_and_records(&event).await, (0, 1));
}

async fn a_handler_that_hides_a_failed_statement_commits_nothing<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    for variant in [InboxVariant::Full, InboxVariant::Minimal] {
        let table = format!("hidden_{variant:?}").to_lowercase();
        let inbox = fixture.builder().table(&table).variant(variant).build().await.unwrap();
        let event = event();
        let hidden = inbox
            .process(&event, async |tx, _| {
                fixture.insert_effect(tx, &event).await?;
                let _ = tx.run("SELECT 1 / 0").await;
                Ok(())
            })
            .await;
        let Err(InboxError::Store(error)) = hidden else { panic!("{hidden:?}") };
        assert!(error.to_string().contains("had failed"), "{error}");
        assert_eq!((fixture.count("effects").await, fixture.count(&table).await), (0, 0));
    }
}

async fn a_serialisation_failure_is_tried_in_a_fresh_transaction<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    for code in ["40001", "40P01"] {
        let (event, runs) = (event(), AtomicU32::new(0));
        let done = inbox
            .process(&event, async |tx, _| {
                fixture.insert_effect(tx, &event).await?;
                if runs.fetch_add(1, SeqCst) < 2 {
                    tx.run(&format!("DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")).await?;
                }
                Ok(())
            })
            .await;
        assert_eq!((done.unwrap(), runs.into_inner()), (Done::Now(()), 3), "{code}");
        assert_eq!(fixture.effects_and_records(&event).await, (1, 1));
    }
}

async fn a_concurrent_copy_is_busy_and_runs_after_the_first_rolls_back<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let event = event();
    let copy =
        || inbox.process(&event, async |tx, _| Ok(fixture.insert_effect(tx, &event).await?));
    let failed = inbox
        .process::<(), _>(&event, async |tx, _| {
            fixture.insert_effect(tx, &event).await?;
            let started = Instant::now();
            assert_eq!(copy().await.unwrap(), Done::Busy);
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "busy after {:?}",
                started.elapsed()
            );
            Err(WorkError::retry("not now"))
        })
        .await;
    assert!(matches!(failed, Err(InboxError::Retry(_))), "{failed:?}");
    assert_eq!(copy().await.unwrap(), Done::Now(()));
    assert_eq!(fixture.effects_and_records(&event).await, (1, 1));
}

/// The copies are delivered again and again; all unrelated events are processed while the handler runs.
async fn a_hundred_duplicates_of_a_slow_handler_block_no_connection<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone,
{
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let (slow, gate, at_work) = (event(), Notify::new(), Notify::new());
    let all_through = AtomicBool::new(false);
    let first = inbox.process(&slow, async |tx, _| {
        fixture.insert_effect(tx, &slow).await?;
        at_work.notify_one();
        gate.notified().await;
        Ok(())
    });
    let others = async {
        at_work.notified().await;
        let copies = (0..100).map(async |_| {
            loop {
                let done = inbox.process::<(), _>(&slow, async |_, _| panic!("a copy ran")).await;
                assert!(matches!(done, Ok(Done::Busy)), "{done:?}");
                if all_through.load(SeqCst) {
                    break;
                }
            }
        });
        let unrelated: Vec<_> = (0..50).map(|_| event()).collect();
        let through = async {
            let calls = unrelated.iter().map(|event| {
                inbox.process(event, async |tx, _| Ok(fixture.insert_effect(tx, event).await?))
            });
            let done = futures_util::future::join_all(calls).await;
            assert!(done.iter().all(|done| matches!(done, Ok(Done::Now(())))), "{done:?}");
            all_through.store(true, SeqCst);
        };
        tokio::join!(futures_util::future::join_all(copies), through);
        assert_eq!(
            fixture.effects_and_records(&slow).await,
            (0, 0),
            "the handler is still at work"
        );
        gate.notify_one();
    };
    let both = async { tokio::join!(first, others) };
    let (first, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    assert_eq!(first.unwrap(), Done::Now(()));
    assert_eq!(fixture.effects_and_records(&slow).await, (1, 1));
    assert_eq!(fixture.count("effects").await, 51);
}

async fn a_call_that_is_dropped_leaves_nothing_open<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let event = event();
    let (reached, at_work) = oneshot::channel();
    let reached = std::sync::Mutex::new(Some(reached));
    let call = inbox.process::<(), _>(&event, async |tx, _| {
        fixture.insert_effect(tx, &event).await?;
        let reached = reached.lock().unwrap().take().unwrap();
        reached.send(()).unwrap();
        std::future::pending().await
    });
    tokio::select! {
        _ = call => panic!("it cannot come to an end"),
        reached = at_work => reached.unwrap(),
    }
    free_again(&fixture, &inbox, &event).await;
}

async fn a_panic_leaves_nothing_open<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    use futures_util::FutureExt;
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let event = event();
    let call = inbox.process::<(), _>(&event, async |tx, _| {
        fixture.insert_effect(tx, &event).await?;
        panic!("on purpose")
    });
    assert!(std::panic::AssertUnwindSafe(call).catch_unwind().await.is_err());
    free_again(&fixture, &inbox, &event).await;
}

/// The event runs as if it were new, and no connection is in a transaction.
async fn free_again<P: InboxPool + Clone>(
    fixture: &InboxFixture<P>,
    inbox: &PgInbox<P>,
    event: &semel_inbox::InboxEvent,
) {
    loop {
        match inbox.process(event, async |tx, _| Ok(fixture.insert_effect(tx, event).await?)).await
        {
            Ok(Done::Busy) => tokio::time::sleep(Duration::from_millis(5)).await,
            done => break assert_eq!(done.unwrap(), Done::Now(())),
        }
    }
    assert_eq!(fixture.effects_and_records(event).await, (1, 1));
    while !fixture.has_no_open_transaction().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn two_consumers_each_handle_an_event_once<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let event = event();
    for consumer in ["profiles", "mail", "profiles"] {
        let inbox = fixture.builder().consumer(consumer).build().await.unwrap();
        inbox
            .process(&event, async |tx, _| Ok(fixture.insert_effect(tx, &event).await?))
            .await
            .unwrap();
    }
    assert_eq!(fixture.effects_and_records(&event).await, (2, 2));
}

async fn a_failure_is_not_taken_for_a_success_where_it_cannot_be_recorded<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let minimal =
        fixture.builder().table("minimal").variant(InboxVariant::Minimal).build().await.unwrap();
    let options = InboxOptions { use_idempotency: false, ..InboxOptions::default() };
    let rejecting = fixture.builder().options(options).build().await.unwrap();
    let event = event();
    for copy in 0..2 {
        let poison = async |_: &mut P::Tx, _: &InboxContext| -> Result<(), WorkError> {
            Err(WorkError::failure("poison", "never"))
        };
        let failed = minimal.process(&event, poison).await;
        assert!(matches!(failed, Err(InboxError::Retry(_))), "copy {copy}: {failed:?}");
        let failed = rejecting.process(&event, poison).await;
        assert!(matches!(failed, Err(InboxError::Failed { .. })), "copy {copy}: {failed:?}");
    }
}

async fn concurrent_copies_of_a_finished_event_are_all_duplicates<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let event = event();
    inbox.process(&event, async |_, _| Ok(7)).await.unwrap();
    let copies =
        (0..50).map(|_| inbox.process::<i32, _>(&event, async |_, _| panic!("it runs again")));
    for done in futures_util::future::join_all(copies).await {
        assert_eq!(done.unwrap(), Done::Duplicate(Some(7)));
    }
}

async fn every_spelling_of_an_id_has_one_downstream_key<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Minimal).await;
    let id = event().id().to_owned();
    let mut keys = Vec::new();
    for id in [id.clone(), id.to_uppercase()] {
        let copy = InboxEvent::new(id, "t").unwrap();
        let key = std::sync::Mutex::new(String::new());
        let failed = inbox
            .process::<(), _>(&copy, async |_, context| {
                *key.lock().unwrap() = context.downstream_key().to_string();
                Err(WorkError::retry("not now"))
            })
            .await;
        assert!(matches!(failed, Err(InboxError::Retry(_))), "{failed:?}");
        keys.push(key.into_inner().unwrap());
    }
    assert_eq!(keys[0], keys[1]);
}

/// The next caller of the connection is not in an old transaction.
async fn a_call_dropped_at_any_moment_leaves_no_transaction_open<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    for micros in (0..3000).step_by(60) {
        let event = event();
        let call =
            inbox.process(&event, async |tx, _| Ok(fixture.insert_effect(tx, &event).await?));
        let _ = tokio::time::timeout(Duration::from_micros(micros), call).await;
    }
    while !fixture.has_no_open_transaction().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let event = event();
    let done =
        inbox.process(&event, async |tx, _| Ok(fixture.insert_effect(tx, &event).await?)).await;
    assert_eq!(done.unwrap(), Done::Now(()));
    assert_eq!(fixture.effects_and_records(&event).await, (1, 1));
    let (effects, records) =
        (fixture.count("effects").await, fixture.count("processed_events").await);
    assert_eq!(effects, records, "effect and record commit together");
}

/// The reply to a COMMIT is lost: the inbox claims again to find out whether it happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_is_lost_is_not_repeated() {
    let fixture = InboxFixture::over_sqlx().await;
    let port = fixture.schema.url.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let proxy = FaultProxy::start(port.parse().unwrap()).unwrap();
    let url = fixture.schema.url.replace(port, &proxy.port().to_string());
    fixture.inbox(InboxVariant::Full).await;
    async fn lost<P: InboxPool + Clone>(
        fixture: &InboxFixture<impl InboxPool + Clone>,
        pool: P,
        proxy: &FaultProxy,
    ) {
        let inbox = PgInbox::builder(pool).schema(&fixture.schema.name).consumer("test");
        let inbox = inbox.build().await.unwrap();
        let (event, runs) = (event(), AtomicU32::new(0));
        let done = inbox
            .process(&event, async |tx, _| {
                fixture.insert_effect(tx, &event).await?;
                if runs.fetch_add(1, SeqCst) == 0 {
                    proxy.lose_reply_to("COMMIT");
                }
                Ok(())
            })
            .await;
        assert_eq!(proxy.traps_left(), 0, "no COMMIT was seen");
        assert_eq!((done.unwrap(), runs.into_inner()), (Done::Duplicate(None), 1));
        assert_eq!(fixture.effects_and_records(&event).await, (1, 1));
    }
    lost(&fixture, sqlx_pool(&url), &proxy).await;
    lost(&fixture, deadpool_pool(&url), &proxy).await;
}
