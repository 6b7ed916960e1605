//! What is wrong with one event of a batch is that event's own error.

use std::time::Duration;

use semel_core::ErrorKind;
use semel_inbox::{
    Done, InboxError, InboxEvent, InboxOptions, InboxPolicy, InboxPool, InboxVariant, PgInbox,
};

use crate::{
    over_pools,
    scene::{OfOne, Scene, dated, event},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

over_pools! {
    an_event_without_a_usable_day_fails_alone
    an_event_of_a_dropped_day_fails_alone
    a_day_that_is_old_but_there_is_served_beside_one_that_lacks
    an_id_that_does_not_fit_the_table_fails_alone
    a_day_without_a_partition_is_found_beside_a_locked_event
    a_partition_that_may_not_be_made_fails_only_its_events
    one_connection_is_enough_to_make_a_partition
}

/// So long a retention, and one attempt: what is isolated needs no second.
async fn parted<P: InboxPool + Clone>(scene: &Scene<P>, days: u32) -> PgInbox<P> {
    let policy = InboxPolicy { retention: days * DAY, attempts: 1, ..InboxPolicy::default() };
    let options = InboxOptions { policy, ..InboxOptions::default() };
    scene.builder().variant(InboxVariant::Partitioned).options(options).build().await.unwrap()
}

fn assert_refused<T: std::fmt::Debug>(done: &Result<Done<T>, InboxError>, why: &str) {
    let Err(InboxError::Store(error)) = done else { panic!("{done:?} is not refused") };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

/// Runs a batch by both doors, each with events of its own: `bad` are refused, the others run.
async fn assert_alone<P: InboxPool + Clone>(
    scene: &Scene<P>,
    inbox: &PgInbox<P>,
    batch: impl AsyncFn() -> Vec<InboxEvent>,
    bad: &[(usize, &str)],
) {
    let events = batch().await;
    let at_once = inbox
        .process_batch(&events, async |tx, new| {
            for event in new {
                scene.takes_effect(tx, event).await?;
            }
            Ok(())
        })
        .await;
    assert_ends(scene, &events, at_once.unwrap(), bad).await;
    let events = batch().await;
    let each = inbox
        .process_each(&events, async |tx, event, _| Ok(scene.takes_effect(tx, event).await?))
        .await;
    assert_ends(scene, &events, each.unwrap(), bad).await;
}

async fn assert_ends<P: InboxPool + Clone>(
    scene: &Scene<P>,
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
                assert_eq!(scene.count(&one).await, 1, "{at}");
            }
        }
    }
}

async fn an_event_without_a_usable_day_fails_alone<P: InboxPool + Clone>(scene: Scene<P>) {
    let (inbox, client) = (parted(&scene, 10).await, scene.client().await);
    let batch = async || {
        let undated = event();
        let sound = undated.clone().occurred_on(dated(&client, 0).await.day().unwrap()).unwrap();
        let (today, missing, old) =
            (dated(&client, 0).await, dated(&client, 5).await, dated(&client, 15).await);
        vec![today, undated, missing, old.clone(), sound, old]
    };
    let bad = [(1, "occurred_on"), (3, "dead-letter"), (5, "dead-letter")];
    assert_alone(&scene, &inbox, batch, &bad).await;
    let hopeless = [event(), dated(&client, 20).await];
    let done = inbox.process_batch(&hopeless, async |_, _| panic!("it ran")).await.unwrap();
    assert_refused(&done[0], "occurred_on");
    assert_refused(&done[1], "dead-letter");
}

async fn an_event_of_a_dropped_day_fails_alone<P: InboxPool + Clone>(scene: Scene<P>) {
    let (long, client) = (parted(&scene, 20).await, scene.client().await);
    let old = dated(&client, 15).await;
    long.process_batch(std::slice::from_ref(&old), async |_, _| Ok(())).await.unwrap();
    assert_eq!(parted(&scene, 10).await.upkeep().await.unwrap().dropped, 1);
    let batch = async || vec![dated(&client, 0).await, old.clone(), dated(&client, 1).await];
    assert_alone(&scene, &long, batch, &[(1, "dead-letter")]).await;
}

async fn a_day_that_is_old_but_there_is_served_beside_one_that_lacks<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let (long, client) = (parted(&scene, 20).await, scene.client().await);
    long.process_batch(&[dated(&client, 15).await], async |_, _| Ok(())).await.unwrap();
    let short = parted(&scene, 10).await;
    let batch =
        async || vec![dated(&client, 15).await, dated(&client, 16).await, dated(&client, 3).await];
    assert_alone(&scene, &short, batch, &[(1, "dead-letter")]).await;
}

async fn an_id_that_does_not_fit_the_table_fails_alone<P: InboxPool + Clone>(scene: Scene<P>) {
    let inbox = scene.inbox(InboxVariant::Minimal).await;
    let batch = async || vec![event(), InboxEvent::new("order-42", "t").unwrap(), event()];
    assert_alone(&scene, &inbox, batch, &[(1, "UUID")]).await;
}

/// The lock is met first, and the missing day while the parts are looked at.
async fn a_day_without_a_partition_is_found_beside_a_locked_event<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let (inbox, client) = (parted(&scene, 10).await, scene.client().await);
    let named = async |id: &str, ago| {
        let day = dated(&client, ago).await;
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
                scene.takes_effect(tx, event).await?;
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
    assert_eq!(scene.count("effects").await, 2);
}

/// A table of that name is in the way: trying again may help once it is gone, and today's events do not wait for it.
async fn a_partition_that_may_not_be_made_fails_only_its_events<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let (inbox, client) = (parted(&scene, 10).await, scene.client().await);
    let missing = dated(&client, 5).await;
    let name = missing.day().unwrap().replace('-', "");
    let other = format!("CREATE TABLE {}.processed_events_p{name} (a int)", scene.schema.name);
    client.batch_execute(&other).await.unwrap();
    let events = [dated(&client, 0).await, missing];
    let done = inbox.process_batch(&events, async |_, _| Ok(())).await.unwrap();
    assert!(matches!(done[0], Ok(Done::Now(()))), "{done:?}");
    let Err(InboxError::Store(error)) = &done[1] else { panic!("{done:?}") };
    assert!(error.kind().is_retryable(), "{error}");
}

async fn one_connection_is_enough_to_make_a_partition<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + OfOne,
{
    let client = scene.client().await;
    parted(&scene, 10).await;
    let inbox = PgInbox::builder(P::of_one(&scene.schema.url)).schema(&scene.schema.name);
    let inbox = inbox.variant(InboxVariant::Partitioned).build().await.unwrap();
    let batch = async || vec![dated(&client, 0).await, dated(&client, 5).await];
    assert_alone(&scene, &inbox, batch, &[]).await;
    let alone = dated(&client, 6).await;
    assert_eq!(inbox.process(&alone, async |_, _| Ok(())).await.unwrap(), Done::Now(()));
}
