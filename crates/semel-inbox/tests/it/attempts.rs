//! Attempts are counted outside of transactions, also by many processes at once.

use futures_util::future::join_all;
use semel_inbox::{AttemptEnd, CountedAttempt, InboxEvent, InboxPool, InboxVariant, PgInbox};

use crate::{
    fixture::{InboxFixture, event, event_of_day},
    over_pools,
};

over_pools! {
    attempts_at_the_same_time_have_different_numbers
    an_attempt_that_did_not_begin_takes_back_only_itself
    attempts_are_counted_after_the_last_one
    events_with_an_attempt_do_not_begin_together
    an_attempt_together_with_others_counts_if_it_failed
    attempts_at_a_recorded_event_are_forgotten
    old_attempts_are_purged
}

async fn counted<P: InboxPool>(inbox: &PgInbox<P>, event: &InboxEvent) -> CountedAttempt {
    inbox.count_attempt(event).await.unwrap().unwrap()
}

async fn end<P: InboxPool>(inbox: &PgInbox<P>, attempt: CountedAttempt, end: AttemptEnd) {
    inbox.end_attempts(&[(attempt, end)]).await.unwrap();
}

/// For each event, whether its first attempt begins together with the others.
async fn begun<P: InboxPool>(
    inbox: &PgInbox<P>,
    events: &[&InboxEvent],
) -> Vec<Option<CountedAttempt>> {
    let events: Vec<_> = events.iter().map(|event| (*event).clone()).collect();
    inbox.begin_together(&events).await.unwrap()
}

async fn attempts_at_the_same_time_have_different_numbers<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let counting = (0..8).map(|_| counted(&inbox, &event));
    let mut numbers: Vec<_> = join_all(counting).await.iter().map(CountedAttempt::number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
}

async fn an_attempt_that_did_not_begin_takes_back_only_itself<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let running = counted(&inbox, &event).await;
    let busy = counted(&inbox, &event).await;
    end(&inbox, busy, AttemptEnd::NotBegun).await;
    assert_eq!(counted(&inbox, &event).await.number(), 2, "the first one is still counted");
    assert_eq!(running.number(), 1);
}

async fn attempts_are_counted_after_the_last_one<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    let first = counted(&inbox, &event).await;
    let second = counted(&inbox, &event).await;
    end(&inbox, first, AttemptEnd::NotBegun).await;
    // The process dies of the second one.
    drop(second);
    assert_eq!(counted(&inbox, &event).await.number(), 3);
    assert_eq!(counted(&inbox, &event).await.number(), 4);
}

async fn events_with_an_attempt_do_not_begin_together<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let (new, died, alone) = (event(), event(), event());
    assert!(begun(&inbox, &[&died]).await[0].is_some());
    counted(&inbox, &alone).await;
    let attempts = begun(&inbox, &[&new, &died, &alone, &new]).await;
    let is_first: Vec<_> = attempts.iter().map(Option::is_some).collect();
    assert_eq!(is_first, [true, false, false, true], "copies are one event");
    assert_eq!(attempts[0].as_ref().unwrap().number(), 1);
    assert_eq!(counted(&inbox, &died).await.number(), 1, "it is not known who killed the process");
}

async fn an_attempt_together_with_others_counts_if_it_failed<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let (failed, busy) = (event(), event());
    let attempts = begun(&inbox, &[&failed, &busy]).await;
    let ends = [AttemptEnd::Failed, AttemptEnd::NotBegun];
    let ended: Vec<_> = attempts.into_iter().map(Option::unwrap).zip(ends).collect();
    inbox.end_attempts(&ended).await.unwrap();
    let attempts = begun(&inbox, &[&failed, &busy]).await;
    assert!(attempts[0].is_none() && attempts[1].is_some());
    assert_eq!(counted(&inbox, &failed).await.number(), 2);
}

async fn attempts_at_a_recorded_event_are_forgotten<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    for variant in [InboxVariant::Full, InboxVariant::Partitioned] {
        let (inbox, event) = (fixture.builder(), event_of_day(&fixture.client().await, 3).await);
        let table = format!("attempts_{variant:?}").to_lowercase();
        let inbox = inbox.table(&table).variant(variant).build().await.unwrap();
        // The day of a partitioned table has no partition yet.
        begun(&inbox, &[&event]).await;
        counted(&inbox, &event).await;
        inbox.process(&event, async |_: &mut P::Tx, _| Ok(())).await.unwrap();
        begun(&inbox, &[&event]).await;
        counted(&inbox, &event).await;
        let last = counted(&inbox, &event).await;
        end(&inbox, last, AttemptEnd::Recorded).await;
        let attempts = fixture.count(&format!("{table} WHERE consumer = 'test attempts'")).await;
        assert_eq!(attempts, 0, "{variant:?}");
    }
}

async fn old_attempts_are_purged<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let (inbox, event) = (fixture.inbox(InboxVariant::Full).await, event());
    counted(&inbox, &event).await;
    let age = format!(
        "UPDATE {}.processed_events SET processed_at = now() - interval '1 year'",
        fixture.schema.name
    );
    fixture.client().await.batch_execute(&age).await.unwrap();
    let other = fixture.builder().consumer("other").build().await.unwrap();
    assert_eq!(other.purge(10).await.unwrap(), 0);
    assert_eq!(inbox.purge(10).await.unwrap(), 1);
}
