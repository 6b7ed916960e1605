//! An event that the table cannot hold fails alone; the rest of its batch is processed.

use std::time::Duration;

use semel_core::ErrorKind;
use semel_inbox::{
    Done, InboxError, InboxEvent, InboxOptions, InboxPolicy, InboxPool, InboxVariant, PgInbox,
};

use crate::{
    fixture::{InboxFixture, SingleConnectionPool, event, event_of_day},
    over_pools,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

over_pools! {
    an_event_without_a_usable_day_fails_alone
    an_event_of_a_dropped_day_fails_alone
    an_old_day_with_a_partition_is_processed_beside_a_day_without
    an_id_that_does_not_fit_the_table_fails_alone
    a_day_without_a_partition_is_found_beside_a_locked_event
    a_partition_that_cannot_be_created_fails_only_its_events
    one_connection_is_enough_to_make_a_partition
}

/// An inbox with that retention and one attempt: isolating a bad event needs no second attempt.
async fn partitioned<P: InboxPool + Clone>(fixture: &InboxFixture<P>, days: u32) -> PgInbox<P> {
    let policy = InboxPolicy { retention: days * DAY, attempts: 1, ..InboxPolicy::default() };
    let options = InboxOptions { policy, ..InboxOptions::default() };
    fixture.builder().variant(InboxVariant::Partitioned).options(options).build().await.unwrap()
}

fn assert_refused<T: std::fmt::Debug>(done: &Result<Done<T>, InboxError>, why: &str) {
    let Err(InboxError::Store(error)) = done else { panic!("{done:?} is not refused") };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

/// Runs a batch by `process_batch` and by `process_each`, each with new events: `bad` are refused, the others run.
async fn assert_alone<P: InboxPool + Clone>(
    fixture: &InboxFixture<P>,
    inbox: &PgInbox<P>,
    batch: impl AsyncFn() -> Vec<InboxEvent>,
    bad: &[(usize, &str)],
) {
    let events = batch().await;
    let at_once = inbox
        .process_batch(&events, async |tx, new| {
            for event in new {
                fixture.insert_effect(tx, event).await?;
            }
            Ok(())
        })
        .await;
    assert_ends(fixture, &events, at_once.unwrap(), bad).await;
    let events = batch().await;
    let each = inbox
        .process_each(&events, async |tx, event, _| Ok(fixture.insert_effect(tx, event).await?))
        .await;
    assert_ends(fixture, &events, each.unwrap(), bad).await;
}

async fn assert_ends<P: InboxPool + Clone>(
    fixture: &InboxFixture<P>,
    events: &[InboxEvent],
    done: Vec<Result<Done<()>, InboxError>>,
    bad: &[(usize, &str)],
) {
    for (at, (event, done)) in events.iter().zip(&done).enumerate() {
        match bad.iter().find(|(bad, _)| *bad == at) {
            Some((_, why)) => assert_refused(done, why),
            None => {
                assert!(matches!(done, Ok(Done::Now(()))), "{at}: {done:?}");
                let one = format!("effects WHERE event = '{}'", event.id());
                assert_eq!(fixture.count(&one).await, 1, "{at}");
            }
        }
    }
}

async fn an_event_without_a_usable_day_fails_alone<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let (inbox, client) = (partitioned(&fixture, 10).await, fixture.client().await);
    let batch = async || {
        let undated = event();
        let sound =
            undated.clone().occurred_on(event_of_day(&client, 0).await.day().unwrap()).unwrap();
        let (today, missing, old) = (
            event_of_day(&client, 0).await,
            event_of_day(&client, 5).await,
            event_of_day(&client, 15).await,
        );
        vec![today, undated, missing, old.clone(), sound, old]
    };
    let bad = [(1, "occurred_on"), (3, "dead-letter"), (5, "dead-letter")];
    assert_alone(&fixture, &inbox, batch, &bad).await;
    let hopeless = [event(), event_of_day(&client, 20).await];
    let done = inbox.process_batch(&hopeless, async |_, _| panic!("it ran")).await.unwrap();
    assert_refused(&done[0], "occurred_on");
    assert_refused(&done[1], "dead-letter");
}

async fn an_event_of_a_dropped_day_fails_alone<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let (long, client) = (partitioned(&fixture, 20).await, fixture.client().await);
    let old = event_of_day(&client, 15).await;
    long.process_batch(std::slice::from_ref(&old), async |_, _| Ok(())).await.unwrap();
    assert_eq!(partitioned(&fixture, 10).await.maintain().await.unwrap().dropped, 1);
    let batch =
        async || vec![event_of_day(&client, 0).await, old.clone(), event_of_day(&client, 1).await];
    assert_alone(&fixture, &long, batch, &[(1, "dead-letter")]).await;
}

async fn an_old_day_with_a_partition_is_processed_beside_a_day_without<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (long, client) = (partitioned(&fixture, 20).await, fixture.client().await);
    long.process_batch(&[event_of_day(&client, 15).await], async |_, _| Ok(())).await.unwrap();
    let short = partitioned(&fixture, 10).await;
    let batch = async || {
        vec![
            event_of_day(&client, 15).await,
            event_of_day(&client, 16).await,
            event_of_day(&client, 3).await,
        ]
    };
    assert_alone(&fixture, &short, batch, &[(1, "dead-letter")]).await;
}

async fn an_id_that_does_not_fit_the_table_fails_alone<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Minimal).await;
    let batch = async || vec![event(), InboxEvent::new("order-42", "t").unwrap(), event()];
    assert_alone(&fixture, &inbox, batch, &[(1, "UUID")]).await;
}

/// The batch meets the lock first, and the missing partition while it tries the parts of the batch.
async fn a_day_without_a_partition_is_found_beside_a_locked_event<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client) = (partitioned(&fixture, 10).await, fixture.client().await);
    let named = async |id: &str, ago| {
        let day = event_of_day(&client, ago).await;
        InboxEvent::new(id, "t").unwrap().occurred_on(day.day().unwrap()).unwrap()
    };
    let events = [
        named("a-held", 0).await,
        named("b-sound", 0).await,
        named("c-missing", 5).await,
        named("d-old", 15).await,
    ];
    let outer = inbox.process(&events[0], async |_, _| {
        let done = inbox.process_batch(&events, async |tx, new| {
            for event in new {
                fixture.insert_effect(tx, event).await?;
            }
            Ok(())
        });
        let done = done.await.unwrap();
        assert!(matches!(done[0], Ok(Done::Busy)), "{done:?}");
        assert!(matches!(done[1..3], [Ok(Done::Now(())), Ok(Done::Now(()))]), "{done:?}");
        assert_refused(&done[3], "dead-letter");
        Ok(())
    });
    assert_eq!(outer.await.unwrap(), Done::Now(()));
    assert_eq!(fixture.count("effects").await, 2);
}

/// A table with the partition's name exists: a retry may succeed once it is removed, and today's events do not wait.
async fn a_partition_that_cannot_be_created_fails_only_its_events<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client) = (partitioned(&fixture, 10).await, fixture.client().await);
    let missing = event_of_day(&client, 5).await;
    let name = missing.day().unwrap().replace('-', "");
    let other = format!("CREATE TABLE {}.processed_events_p{name} (a int)", fixture.schema.name);
    client.batch_execute(&other).await.unwrap();
    let events = [event_of_day(&client, 0).await, missing];
    let done = inbox.process_batch(&events, async |_, _| Ok(())).await.unwrap();
    assert!(matches!(done[0], Ok(Done::Now(()))), "{done:?}");
    let Err(InboxError::Store(error)) = &done[1] else { panic!("{done:?}") };
    assert!(error.kind().is_retryable(), "{error}");
}

async fn one_connection_is_enough_to_make_a_partition<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + SingleConnectionPool,
{
    let client = fixture.client().await;
    partitioned(&fixture, 10).await;
    let inbox = PgInbox::builder(P::single(&fixture.schema.url)).schema(&fixture.schema.name);
    let inbox = inbox.variant(InboxVariant::Partitioned).build().await.unwrap();
    let batch = async || vec![event_of_day(&client, 0).await, event_of_day(&client, 5).await];
    assert_alone(&fixture, &inbox, batch, &[]).await;
    let alone = event_of_day(&client, 6).await;
    assert_eq!(inbox.process(&alone, async |_, _| Ok(())).await.unwrap(), Done::Now(()));
}
