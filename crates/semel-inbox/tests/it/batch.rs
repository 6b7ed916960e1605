//! Many events in one transaction.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use semel_core::WorkError;
use semel_inbox::{Done, InboxContext, InboxError, InboxEvent, InboxPool, InboxTx, InboxVariant};

use crate::{
    fixture::{InboxFixture, event},
    over_pools,
};

over_pools! {
    a_batch_calls_its_handler_once_for_all_new_events
    a_batch_that_fails_leaves_nothing
    each_event_of_a_batch_has_its_own_result
    a_poison_event_does_not_run_the_good_ones_twice
    a_locked_event_is_busy_and_the_others_are_processed
    batches_in_opposite_order_do_not_deadlock
    an_empty_batch_is_answered
    a_batch_reports_which_duplicates_failed
    a_handler_that_hides_a_failed_statement_fails_only_its_event
}

fn events(count: usize) -> Vec<InboxEvent> {
    (0..count).map(|_| event()).collect()
}

async fn a_batch_calls_its_handler_once_for_all_new_events<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    for variant in [InboxVariant::Minimal, InboxVariant::Full] {
        let table = format!("batch_{variant:?}").to_lowercase();
        let inbox = fixture.builder().table(&table).variant(variant).build().await.unwrap();
        let mut events = events(500);
        inbox.process(&events[7], async |_, _| Ok(())).await.unwrap();
        events.push(events[3].clone());
        let runs = AtomicU32::new(0);
        let done = inbox
            .process_batch(&events, async |tx, new| {
                runs.fetch_add(1, SeqCst);
                for event in new {
                    fixture.insert_effect(tx, event).await?;
                }
                Ok(())
            })
            .await
            .unwrap();
        for (at, done) in done.iter().enumerate() {
            let is_duplicate = at == 7 || at == 500;
            let done = done.as_ref().unwrap();
            assert_eq!(matches!(done, Done::Duplicate(_)), is_duplicate, "{at}");
            assert_eq!(*done == Done::Now(()), !is_duplicate, "{at}");
        }
        assert_eq!((runs.into_inner(), fixture.count(&table).await), (1, 500));
        let again =
            inbox.process_batch(&events, async |_, _| panic!("it ran again")).await.unwrap();
        assert!(again.iter().all(|done| matches!(done, Ok(Done::Duplicate(_)))));
    }
    assert_eq!(fixture.count("effects").await, 2 * 499);
}

async fn a_batch_that_fails_leaves_nothing<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let events = events(10);
    let failed = inbox
        .process_batch(&events, async |tx, new| {
            fixture.insert_effect(tx, new[0]).await?;
            Err(WorkError::failure("bad", "one of them"))
        })
        .await;
    assert!(matches!(failed, Err(InboxError::Retry(_))), "nothing is recorded: {failed:?}");
    assert_eq!((fixture.count("effects").await, fixture.count("processed_events").await), (0, 0));
}

async fn each_event_of_a_batch_has_its_own_result<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let mut events = events(5);
    inbox.process(&events[4], async |_, _| Ok("before".to_owned())).await.unwrap();
    events.extend([events[0].clone(), events[1].clone(), events[2].clone()]);
    let run = || {
        inbox.process_each(&events, async |tx, event, _| {
            fixture.insert_effect(tx, event).await?;
            if *event == events[1] {
                return Err(WorkError::failure("poison", "never"));
            }
            if *event == events[2] {
                return Err(WorkError::retry("not now"));
            }
            Ok("now".to_owned())
        })
    };
    let done = run().await.unwrap();
    let text = |text: &str| text.to_owned();
    assert_eq!(*done[0].as_ref().unwrap(), Done::Now(text("now")));
    assert!(matches!(done[1], Err(InboxError::Failed { replayed: false, .. })), "{:?}", done[1]);
    assert!(matches!(done[2], Err(InboxError::Retry(_))), "{:?}", done[2]);
    assert_eq!(*done[3].as_ref().unwrap(), Done::Now(text("now")));
    assert_eq!(*done[4].as_ref().unwrap(), Done::Duplicate(Some(text("before"))));
    // Copies in the same batch.
    assert_eq!(*done[5].as_ref().unwrap(), Done::Duplicate(Some(text("now"))));
    assert!(matches!(done[6], Err(InboxError::Failed { replayed: true, .. })), "{:?}", done[6]);
    assert_eq!(*done[7].as_ref().unwrap(), Done::Busy);
    let seen = [
        fixture.effects_and_records(&events[0]).await,
        fixture.effects_and_records(&events[1]).await,
        fixture.effects_and_records(&events[2]).await,
    ];
    assert_eq!(seen, [(1, 1), (0, 1), (0, 0)], "the claim of an event to retry is removed");
    let again = run().await.unwrap();
    assert_eq!(*again[0].as_ref().unwrap(), Done::Duplicate(Some(text("now"))));
    assert!(matches!(again[1], Err(InboxError::Failed { replayed: true, .. })), "{:?}", again[1]);
    assert!(matches!(again[2], Err(InboxError::Retry(_))), "it is new again");
}

async fn a_poison_event_does_not_run_the_good_ones_twice<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let (events, runs) = (events(20), AtomicU32::new(0));
    let done = inbox
        .process_each(&events, async |tx, event, _| {
            runs.fetch_add(1, SeqCst);
            fixture.insert_effect(tx, event).await?;
            if *event == events[10] {
                tx.run("SELECT 1 / 0").await?;
            }
            Ok(())
        })
        .await
        .unwrap();
    assert!(matches!(done[10], Err(InboxError::Retry(_))), "{:?}", done[10]);
    assert_eq!(done.iter().filter(|done| matches!(done, Ok(Done::Now(())))).count(), 19);
    assert_eq!(runs.into_inner(), 20, "each ran once");
    assert_eq!((fixture.count("effects").await, fixture.count("processed_events").await), (19, 19));
}

async fn a_locked_event_is_busy_and_the_others_are_processed<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let events = events(100);
    inbox
        .process(&events[42], async |tx, _| {
            fixture.insert_effect(tx, &events[42]).await?;
            let done = inbox
                .process_batch(&events, async |tx, new| {
                    for event in new {
                        fixture.insert_effect(tx, event).await?;
                    }
                    Ok(())
                })
                .await
                .unwrap();
            for (at, done) in done.iter().enumerate() {
                let expected = if at == 42 { Done::Busy } else { Done::Now(()) };
                assert_eq!(*done.as_ref().unwrap(), expected, "{at}");
            }
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(
        (fixture.count("effects").await, fixture.count("processed_events").await),
        (100, 100)
    );
}

async fn batches_in_opposite_order_do_not_deadlock<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let events = events(200);
    let mut reversed = events.clone();
    reversed.reverse();
    let batch = async |events: &[InboxEvent]| loop {
        let done = inbox.process_batch(events, async |tx, new| {
            for event in new {
                fixture.insert_effect(tx, event).await?;
            }
            Ok(())
        });
        if !done.await.unwrap().iter().any(|done| matches!(done, Ok(Done::Busy))) {
            break;
        }
    };
    tokio::join!(batch(&events), batch(&reversed), batch(&events[50..150]));
    assert_eq!(
        (fixture.count("effects").await, fixture.count("processed_events").await),
        (200, 200)
    );
}

async fn an_empty_batch_is_answered<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    assert!(inbox.process_batch(&[], async |_, _| panic!("it ran")).await.unwrap().is_empty());
}

async fn a_batch_reports_which_duplicates_failed<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let events = events(2);
    let poison = async |_: &mut P::Tx, _: &InboxContext| -> Result<(), WorkError> {
        Err(WorkError::failure("poison", "never"))
    };
    inbox.process(&events[0], poison).await.unwrap_err();
    let done = inbox.process_batch(&events, async |_, _| Ok(())).await.unwrap();
    assert!(matches!(done[0], Err(InboxError::Failed { replayed: true, .. })), "{done:?}");
    assert!(matches!(done[1], Ok(Done::Now(()))), "{done:?}");
}

async fn a_handler_that_hides_a_failed_statement_fails_only_its_event<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let events = events(3);
    let done = inbox
        .process_each(&events, async |tx, event, _| {
            fixture.insert_effect(tx, event).await?;
            if *event == events[1] {
                let _ = tx.run("SELECT 1 / 0").await;
            }
            Ok(())
        })
        .await
        .unwrap();
    assert!(matches!(done[1], Err(InboxError::Retry(_))), "{done:?}");
    let seen = [
        fixture.effects_and_records(&events[0]).await,
        fixture.effects_and_records(&events[1]).await,
        fixture.effects_and_records(&events[2]).await,
    ];
    assert_eq!(seen, [(1, 1), (0, 0), (1, 1)]);
}
