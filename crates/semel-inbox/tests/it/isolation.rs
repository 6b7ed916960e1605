//! Partitions, installs, commits and batches of one caller do not disturb those of another.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

use semel_core::ErrorKind;
use semel_inbox::{
    Claimed, Done, InboxError, InboxEvent, InboxOptions, InboxPolicy, InboxPool, InboxTransaction,
    InboxTx, InboxVariant, PgInbox, TxError,
};
use tokio::time::timeout;

use crate::{
    fixture::{InboxFixture, event, event_of_day},
    over_pools,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SOON: Duration = Duration::from_secs(20);

over_pools! {
    a_purge_takes_nothing_from_other_partitions
    a_second_install_waits_for_no_handler
    a_claim_in_the_callers_transaction_gets_its_partition
    an_event_that_breaks_a_deferred_constraint_fails_alone
    a_constraint_is_deferred_for_every_handler_of_a_batch
    an_event_whose_commit_a_concurrent_change_forbids_fails_alone
    a_deferred_constraint_on_the_inbox_table_fails_only_its_event
    a_second_copy_of_a_running_batch_is_busy
    a_batch_with_many_locked_events_processes_the_others
    a_deadlock_restarts_the_batch
    an_id_with_two_days_is_not_taken_for_a_duplicate
    maintenance_of_a_table_with_a_default_partition_names_the_fix
    other_text_in_the_table_comment_stays_and_is_ignored
}

async fn partitioned<P: InboxPool + Clone>(fixture: &InboxFixture<P>, days: u32) -> PgInbox<P> {
    let builder = fixture.builder().variant(InboxVariant::Partitioned).retention(days * DAY);
    builder.build().await.unwrap()
}

async fn handled(inbox: &PgInbox<impl InboxPool>, event: &InboxEvent) {
    assert_eq!(inbox.process(event, async |_, _| Ok(())).await.unwrap(), Done::Now(()));
}

async fn a_purge_takes_nothing_from_other_partitions<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client) = (partitioned(&fixture, 10).await, fixture.client().await);
    let (new, old) = (event_of_day(&client, 0).await, event_of_day(&client, 3).await);
    handled(&inbox, &event_of_day(&client, 0).await).await;
    handled(&inbox, &new).await;
    handled(&inbox, &old).await;
    // Its row is then the second of its partition, as the row of the new event is.
    let age = format!(
        "UPDATE {}.processed_events SET processed_at = now() - interval '20 days' WHERE event_id = $1",
        fixture.schema.name
    );
    assert_eq!(client.execute(&age, &[&old.id()]).await.unwrap(), 1);
    assert_eq!(inbox.purge(10).await.unwrap(), 1);
    assert_eq!(
        (fixture.effects_and_records(&old).await.1, fixture.effects_and_records(&new).await.1),
        (0, 1)
    );
    assert_eq!(fixture.count("processed_events").await, 2);
}

async fn a_second_install_waits_for_no_handler<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    for variant in [InboxVariant::Full, InboxVariant::Partitioned] {
        let inbox = fixture.builder().table(format!("{variant:?}").to_lowercase()).variant(variant);
        let (first, second) = (inbox.build().await.unwrap(), async || {
            let table = format!("{variant:?}").to_lowercase();
            fixture.builder().table(table).variant(variant).build().await.unwrap()
        });
        let client = fixture.client().await;
        let (one, other) = (event_of_day(&client, 0).await, event_of_day(&client, 0).await);
        let done = first.process(&one, async |_, _| {
            let second = timeout(SOON, second()).await.expect("the install waits for a handler");
            handled(&second, &other).await;
            Ok(())
        });
        assert_eq!(done.await.unwrap(), Done::Now(()));
    }
}

async fn a_claim_in_the_callers_transaction_gets_its_partition<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client) = (partitioned(&fixture, 10).await, fixture.client().await);
    let (event, forgotten) = (event_of_day(&client, 3).await, event_of_day(&client, 30).await);
    let begin = async || {
        let begun = fixture.pool.begin("BEGIN; SAVEPOINT semel", "SELECT '1'::text", &[]).await;
        begun.unwrap().0
    };
    let mut tx = begin().await;
    let claimed = inbox.claim_in(&mut tx, &event).await.unwrap();
    assert!(matches!(claimed, Claimed::New(_)), "{claimed:?}");
    tx.commit().await.unwrap();
    assert_eq!(fixture.effects_and_records(&event).await.1, 1);
    let refused = inbox.claim_in(&mut begin().await, &forgotten).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

async fn an_event_that_breaks_a_deferred_constraint_fails_alone<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client, name) =
        (fixture.inbox(InboxVariant::Full).await, fixture.client().await, &fixture.schema.name);
    let table = format!(
        "CREATE TABLE {name}.once (what text UNIQUE DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO {name}.once VALUES ('poison')"
    );
    client.batch_execute(&table).await.unwrap();
    let poison = event();
    let insert = |event: &InboxEvent| match event == &poison {
        true => format!("INSERT INTO {name}.once VALUES ('poison')"),
        false => format!("INSERT INTO {name}.once VALUES ('{}')", event.id()),
    };
    let (events, calls) = ([event(), poison.clone(), event()], AtomicU32::new(0));
    let each = inbox.process_each(&events, async |tx, event, _| {
        calls.fetch_add(1, Relaxed);
        Ok(tx.run(&insert(event)).await?)
    });
    let answers = each.await.unwrap();
    assert_eq!(calls.into_inner(), 3, "good events ran twice");
    let is_now = |at: usize| matches!(answers[at], Ok(Done::Now(())));
    assert!(is_now(0) && is_now(2), "{answers:?}");
    assert!(matches!(answers[1], Err(InboxError::Retry(_))), "{answers:?}");
    let one = inbox.process(&poison, async |tx, _| Ok(tx.run(&insert(&poison)).await?)).await;
    assert!(matches!(one, Err(InboxError::Retry(_))), "{one:?}");
    assert_eq!((fixture.count("once").await, fixture.count("processed_events").await), (3, 2));
}

/// Tables in which a child may be inserted before its parent.
async fn make_families<P: InboxPool + Clone>(fixture: &InboxFixture<P>) {
    let name = &fixture.schema.name;
    let tables = format!(
        "CREATE TABLE {name}.parents (id text PRIMARY KEY);
         CREATE TABLE {name}.children (id text REFERENCES {name}.parents DEFERRABLE INITIALLY DEFERRED)"
    );
    fixture.client().await.batch_execute(&tables).await.unwrap();
}

/// A constraint that is checked after one handler stays deferred for the next.
async fn a_constraint_is_deferred_for_every_handler_of_a_batch<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, name) = (fixture.inbox(InboxVariant::Full).await, &fixture.schema.name);
    make_families(&fixture).await;
    let orphan = event();
    let events = [event(), orphan.clone(), event()];
    let done = inbox.process_each(&events, async |tx, event, _| {
        let id = event.id();
        tx.run(&format!("INSERT INTO {name}.children VALUES ('{id}')")).await?;
        if *event != orphan {
            tx.run(&format!("INSERT INTO {name}.parents VALUES ('{id}')")).await?;
        }
        Ok(())
    });
    let answers = done.await.unwrap();
    let is_now = |at: usize| matches!(answers[at], Ok(Done::Now(())));
    assert!(is_now(0) && is_now(2) && !is_now(1), "{answers:?}");
    assert_eq!((fixture.count("children").await, fixture.count("processed_events").await), (2, 2));
}

/// The change comes after the handler and before the commit: the inbox has to process the events one by one to find
/// the one that fails.
async fn an_event_whose_commit_a_concurrent_change_forbids_fails_alone<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client, name) =
        (fixture.inbox(InboxVariant::Full).await, fixture.client().await, &fixture.schema.name);
    make_families(&fixture).await;
    let parents = format!("INSERT INTO {name}.parents VALUES ('one'), ('two')");
    client.batch_execute(&parents).await.unwrap();
    let orphan = event();
    let events = [orphan.clone(), event(), event()];
    let done = inbox.process_each(&events, async |tx, event, _| {
        let parent = if *event == orphan { "one" } else { "two" };
        tx.run(&format!("INSERT INTO {name}.children VALUES ('{parent}')")).await?;
        if *event != orphan {
            let delete = format!("DELETE FROM {name}.parents WHERE id = 'one'");
            client.batch_execute(&delete).await.unwrap();
        }
        Ok(())
    });
    let answers = done.await.unwrap();
    let is_now = |at: usize| matches!(answers[at], Ok(Done::Now(())));
    assert!(!is_now(0) && is_now(1) && is_now(2), "{answers:?}");
    assert_eq!((fixture.count("children").await, fixture.count("processed_events").await), (2, 2));
}

/// All claims are inserted before the first handler runs, so a claim that violates a constraint shows after each
/// handler.
async fn a_deferred_constraint_on_the_inbox_table_fails_only_its_event<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client, name) =
        (fixture.inbox(InboxVariant::Full).await, fixture.client().await, &fixture.schema.name);
    let rules = format!(
        "CREATE TABLE {name}.types (event_type text PRIMARY KEY);
         INSERT INTO {name}.types VALUES ('UserRegistered');
         ALTER TABLE {name}.processed_events ADD FOREIGN KEY (event_type) REFERENCES {name}.types
           DEFERRABLE INITIALLY DEFERRED;
         CREATE FUNCTION {name}.ended() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           PERFORM FROM {name}.processed_events WHERE event_id = NEW.event_id AND outcome IS NULL;
           IF FOUND THEN RAISE EXCEPTION 'an event without an outcome'; END IF; RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER ended AFTER INSERT ON {name}.processed_events DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION {name}.ended()"
    );
    client.batch_execute(&rules).await.unwrap();
    let odd = InboxEvent::new("odd", "Unheard").unwrap();
    let events = [event(), odd, event()];
    let answers = inbox.process_each(&events, async |_, _, _| Ok("done".to_owned())).await.unwrap();
    let is_now = |at: usize| matches!(answers[at], Ok(Done::Now(_)));
    assert!(is_now(0) && !is_now(1) && is_now(2), "{answers:?}");
    assert_eq!(fixture.count("processed_events").await, 2);
}

async fn a_second_copy_of_a_running_batch_is_busy<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let policy = InboxPolicy { patience: Duration::from_secs(1), ..InboxPolicy::default() };
    let options = InboxOptions { policy, ..InboxOptions::default() };
    let inbox = fixture.builder().options(options).build().await.unwrap();
    let events: Vec<InboxEvent> = (0..500).map(|_| event()).collect();
    let done = inbox.process_batch(&events, async |_, _| {
        let began = Instant::now();
        let copies = inbox.process_batch(&events, async |_, _| Ok(())).await.unwrap();
        assert!(copies.iter().all(|copy| matches!(copy, Ok(Done::Busy))));
        assert!(began.elapsed() < SOON, "busy after {:?}", began.elapsed());
        Ok(())
    });
    assert!(done.await.unwrap().iter().all(|done| matches!(done, Ok(Done::Now(())))));
}

/// The events that no other transaction holds are processed, however many are locked.
async fn a_batch_with_many_locked_events_processes_the_others<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let mut events: Vec<InboxEvent> = (0..500).map(|_| event()).collect();
    events.sort_by(|one, other| one.id().cmp(other.id()));
    let done = inbox.process_batch(&events[..30], async |_, _| {
        let others = inbox.process_batch(&events, async |_, _| Ok(())).await.unwrap();
        assert!(others[..30].iter().all(|other| matches!(other, Ok(Done::Busy))));
        let processed: usize =
            others[30..].iter().filter(|other| matches!(other, Ok(Done::Now(())))).count();
        assert!(processed >= 450, "{processed} of 470 were processed");
        Ok(())
    });
    done.await.unwrap();
}

async fn a_deadlock_restarts_the_batch<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let (inbox, calls) = (fixture.inbox(InboxVariant::Full).await, AtomicU32::new(0));
    let events = [event(), event()];
    let done = inbox.process_each(&events, async |tx, event, _| {
        fixture.insert_effect(tx, event).await?;
        if calls.fetch_add(1, Relaxed) == 1 {
            Err(TxError::new(Some("40P01".to_owned()), "deadlock detected"))?;
        }
        Ok(())
    });
    assert!(done.await.unwrap().iter().all(|done| matches!(done, Ok(Done::Now(())))));
    assert_eq!(calls.into_inner(), 4);
    for event in &events {
        assert_eq!(fixture.effects_and_records(event).await, (1, 1));
    }
}

async fn an_id_with_two_days_is_not_taken_for_a_duplicate<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client) = (partitioned(&fixture, 10).await, fixture.client().await);
    let (today, yesterday) = (event_of_day(&client, 0).await, event_of_day(&client, 1).await);
    let other = InboxEvent::new(today.id(), "UserRegistered").unwrap();
    let other = other.occurred_on(yesterday.day().unwrap()).unwrap();
    let done = inbox.process_each(&[today, other], async |_, _, _| Ok(())).await.unwrap();
    assert!(matches!(done[0], Ok(Done::Now(()))), "{done:?}");
    let Err(InboxError::Store(refused)) = &done[1] else { panic!("{done:?}") };
    assert!(refused.to_string().contains("two days"), "{refused}");
}

async fn maintenance_of_a_table_with_a_default_partition_names_the_fix<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client, name) =
        (partitioned(&fixture, 20).await, fixture.client().await, &fixture.schema.name);
    handled(&inbox, &event_of_day(&client, 15).await).await;
    let default = format!("CREATE TABLE {name}.rest PARTITION OF {name}.processed_events DEFAULT");
    client.batch_execute(&default).await.unwrap();
    let refused = partitioned(&fixture, 10).await.maintain().await.unwrap_err();
    assert!(refused.to_string().contains("DEFAULT"), "{refused}");
}

async fn other_text_in_the_table_comment_stays_and_is_ignored<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let (inbox, client, name) =
        (partitioned(&fixture, 20).await, fixture.client().await, &fixture.schema.name);
    let say = format!("COMMENT ON TABLE {name}.processed_events IS 'ours until 2099-01-01'");
    client.batch_execute(&say).await.unwrap();
    handled(&inbox, &event_of_day(&client, 15).await).await;
    let short = partitioned(&fixture, 10).await;
    for _ in 0..2 {
        short.maintain().await.unwrap();
        handled(&short, &event_of_day(&client, 5).await).await;
    }
    let ask = format!("SELECT obj_description('{name}.processed_events'::regclass, 'pg_class')");
    let said: String = client.query_one(&ask, &[]).await.unwrap().get(0);
    assert!(said.starts_with("ours until 2099-01-01 semel: "), "{said}");
    assert_eq!(said.matches("semel: dropped before 20").count(), 1, "{said}");
}
