//! What one does is kept apart from what others do: partitions, installs, commits, batches.

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
    over_pools,
    scene::{Scene, dated, event},
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SOON: Duration = Duration::from_secs(20);

over_pools! {
    a_purge_takes_nothing_from_other_partitions
    a_second_install_waits_for_no_handler
    a_claim_in_a_transaction_of_ones_own_gets_its_partition
    what_cannot_be_committed_fails_alone
    a_constraint_is_deferred_for_every_handler_of_a_batch
    what_others_make_impossible_before_the_commit_fails_alone
    a_deferred_rule_of_the_inbox_itself_spoils_only_its_event
    a_batch_that_runs_already_is_busy_before_long
    a_batch_beside_many_locked_events_goes_on
    a_deadlock_begins_a_batch_anew
    an_id_with_two_days_is_not_taken_for_a_duplicate
    beside_a_default_partition_upkeep_says_what_to_do
    what_else_a_comment_says_stays_and_does_not_count
}

async fn parted<P: InboxPool + Clone>(scene: &Scene<P>, days: u32) -> PgInbox<P> {
    let builder = scene.builder().variant(InboxVariant::Partitioned).retention(days * DAY);
    builder.build().await.unwrap()
}

async fn handled(inbox: &PgInbox<impl InboxPool>, event: &InboxEvent) {
    assert_eq!(inbox.process(event, async |_, _| Ok(())).await.unwrap(), Done::Now(()));
}

async fn a_purge_takes_nothing_from_other_partitions<P: InboxPool + Clone>(scene: Scene<P>) {
    let (inbox, client) = (parted(&scene, 10).await, scene.client().await);
    let (new, old) = (dated(&client, 0).await, dated(&client, 3).await);
    handled(&inbox, &dated(&client, 0).await).await;
    handled(&inbox, &new).await;
    handled(&inbox, &old).await;
    // Its row is then the second of its partition, as the new one's is.
    let age = format!(
        "UPDATE {}.processed_events SET processed_at = now() - interval '20 days' WHERE event_id = $1",
        scene.schema.name
    );
    assert_eq!(client.execute(&age, &[&old.id()]).await.unwrap(), 1);
    assert_eq!(inbox.purge(10).await.unwrap(), 1);
    assert_eq!((scene.seen(&old).await.1, scene.seen(&new).await.1), (0, 1));
    assert_eq!(scene.count("processed_events").await, 2);
}

async fn a_second_install_waits_for_no_handler<P: InboxPool + Clone>(scene: Scene<P>) {
    for variant in [InboxVariant::Full, InboxVariant::Partitioned] {
        let inbox = scene.builder().table(format!("{variant:?}").to_lowercase()).variant(variant);
        let (first, second) = (inbox.build().await.unwrap(), async || {
            let table = format!("{variant:?}").to_lowercase();
            scene.builder().table(table).variant(variant).build().await.unwrap()
        });
        let client = scene.client().await;
        let (one, other) = (dated(&client, 0).await, dated(&client, 0).await);
        let done = first.process(&one, async |_, _| {
            let second = timeout(SOON, second()).await.expect("it waits for a handler");
            handled(&second, &other).await;
            Ok(())
        });
        assert_eq!(done.await.unwrap(), Done::Now(()));
    }
}

async fn a_claim_in_a_transaction_of_ones_own_gets_its_partition<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let (inbox, client) = (parted(&scene, 10).await, scene.client().await);
    let (event, forgotten) = (dated(&client, 3).await, dated(&client, 30).await);
    let begin = async || {
        let begun = scene.pool.begin("BEGIN; SAVEPOINT semel", "SELECT '1'::text", &[]).await;
        begun.unwrap().0
    };
    let mut tx = begin().await;
    let claimed = inbox.claim_in(&mut tx, &event).await.unwrap();
    assert!(matches!(claimed, Claimed::New(_)), "{claimed:?}");
    tx.commit().await.unwrap();
    assert_eq!(scene.seen(&event).await.1, 1);
    let refused = inbox.claim_in(&mut begin().await, &forgotten).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

async fn what_cannot_be_committed_fails_alone<P: InboxPool + Clone>(scene: Scene<P>) {
    let (inbox, client, name) =
        (scene.inbox(InboxVariant::Full).await, scene.client().await, &scene.schema.name);
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
    assert_eq!(calls.into_inner(), 3, "good ones ran twice");
    let is_now = |at: usize| matches!(answers[at], Ok(Done::Now(())));
    assert!(is_now(0) && is_now(2), "{answers:?}");
    assert!(matches!(answers[1], Err(InboxError::Retry(_))), "{answers:?}");
    let one = inbox.process(&poison, async |tx, _| Ok(tx.run(&insert(&poison)).await?)).await;
    assert!(matches!(one, Err(InboxError::Retry(_))), "{one:?}");
    assert_eq!((scene.count("once").await, scene.count("processed_events").await), (3, 2));
}

/// Children whose parents may come after them.
async fn make_families<P: InboxPool + Clone>(scene: &Scene<P>) {
    let name = &scene.schema.name;
    let tables = format!(
        "CREATE TABLE {name}.parents (id text PRIMARY KEY);
         CREATE TABLE {name}.children (id text REFERENCES {name}.parents DEFERRABLE INITIALLY DEFERRED)"
    );
    scene.client().await.batch_execute(&tables).await.unwrap();
}

/// What one handler defers to the end of its own work stays deferred for the next.
async fn a_constraint_is_deferred_for_every_handler_of_a_batch<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let (inbox, name) = (scene.inbox(InboxVariant::Full).await, &scene.schema.name);
    make_families(&scene).await;
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
    assert_eq!((scene.count("children").await, scene.count("processed_events").await), (2, 2));
}

/// Between a handler's end and the commit: then only one by one they can be told apart.
async fn what_others_make_impossible_before_the_commit_fails_alone<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let (inbox, client, name) =
        (scene.inbox(InboxVariant::Full).await, scene.client().await, &scene.schema.name);
    make_families(&scene).await;
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
    assert_eq!((scene.count("children").await, scene.count("processed_events").await), (2, 2));
}

/// Claims are there before the first handler runs: whose claim it is that breaks a rule, no handler is to blame.
async fn a_deferred_rule_of_the_inbox_itself_spoils_only_its_event<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let (inbox, client, name) =
        (scene.inbox(InboxVariant::Full).await, scene.client().await, &scene.schema.name);
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
    assert_eq!(scene.count("processed_events").await, 2);
}

async fn a_batch_that_runs_already_is_busy_before_long<P: InboxPool + Clone>(scene: Scene<P>) {
    let policy = InboxPolicy { patience: Duration::from_secs(1), ..InboxPolicy::default() };
    let options = InboxOptions { policy, ..InboxOptions::default() };
    let inbox = scene.builder().options(options).build().await.unwrap();
    let events: Vec<InboxEvent> = (0..500).map(|_| event()).collect();
    let done = inbox.process_batch(&events, async |_, _| {
        let began = Instant::now();
        let twins = inbox.process_batch(&events, async |_, _| Ok(())).await.unwrap();
        assert!(twins.iter().all(|twin| matches!(twin, Ok(Done::Busy))));
        assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
        Ok(())
    });
    assert!(done.await.unwrap().iter().all(|done| matches!(done, Ok(Done::Now(())))));
}

/// However many of a batch others hold, what nobody holds goes through.
async fn a_batch_beside_many_locked_events_goes_on<P: InboxPool + Clone>(scene: Scene<P>) {
    let inbox = scene.inbox(InboxVariant::Full).await;
    let mut events: Vec<InboxEvent> = (0..500).map(|_| event()).collect();
    events.sort_by(|one, other| one.id().cmp(other.id()));
    let done = inbox.process_batch(&events[..30], async |_, _| {
        let others = inbox.process_batch(&events, async |_, _| Ok(())).await.unwrap();
        assert!(others[..30].iter().all(|other| matches!(other, Ok(Done::Busy))));
        let gone: usize =
            others[30..].iter().filter(|other| matches!(other, Ok(Done::Now(())))).count();
        assert!(gone >= 450, "{gone} of 470 went through");
        Ok(())
    });
    done.await.unwrap();
}

async fn a_deadlock_begins_a_batch_anew<P: InboxPool + Clone>(scene: Scene<P>) {
    let (inbox, calls) = (scene.inbox(InboxVariant::Full).await, AtomicU32::new(0));
    let events = [event(), event()];
    let done = inbox.process_each(&events, async |tx, event, _| {
        scene.takes_effect(tx, event).await?;
        if calls.fetch_add(1, Relaxed) == 1 {
            Err(TxError::new(Some("40P01".to_owned()), "deadlock detected"))?;
        }
        Ok(())
    });
    assert!(done.await.unwrap().iter().all(|done| matches!(done, Ok(Done::Now(())))));
    assert_eq!(calls.into_inner(), 4);
    for event in &events {
        assert_eq!(scene.seen(event).await, (1, 1));
    }
}

async fn an_id_with_two_days_is_not_taken_for_a_duplicate<P: InboxPool + Clone>(scene: Scene<P>) {
    let (inbox, client) = (parted(&scene, 10).await, scene.client().await);
    let (today, yesterday) = (dated(&client, 0).await, dated(&client, 1).await);
    let other = InboxEvent::new(today.id(), "UserRegistered").unwrap();
    let other = other.occurred_on(yesterday.day().unwrap()).unwrap();
    let done = inbox.process_each(&[today, other], async |_, _, _| Ok(())).await.unwrap();
    assert!(matches!(done[0], Ok(Done::Now(()))), "{done:?}");
    let Err(InboxError::Store(refused)) = &done[1] else { panic!("{done:?}") };
    assert!(refused.to_string().contains("two days"), "{refused}");
}

async fn beside_a_default_partition_upkeep_says_what_to_do<P: InboxPool + Clone>(scene: Scene<P>) {
    let (inbox, client, name) =
        (parted(&scene, 20).await, scene.client().await, &scene.schema.name);
    handled(&inbox, &dated(&client, 15).await).await;
    let default = format!("CREATE TABLE {name}.rest PARTITION OF {name}.processed_events DEFAULT");
    client.batch_execute(&default).await.unwrap();
    let refused = parted(&scene, 10).await.upkeep().await.unwrap_err();
    assert!(refused.to_string().contains("DEFAULT"), "{refused}");
}

async fn what_else_a_comment_says_stays_and_does_not_count<P: InboxPool + Clone>(scene: Scene<P>) {
    let (inbox, client, name) =
        (parted(&scene, 20).await, scene.client().await, &scene.schema.name);
    let say = format!("COMMENT ON TABLE {name}.processed_events IS 'ours until 2099-01-01'");
    client.batch_execute(&say).await.unwrap();
    handled(&inbox, &dated(&client, 15).await).await;
    let short = parted(&scene, 10).await;
    for _ in 0..2 {
        short.upkeep().await.unwrap();
        handled(&short, &dated(&client, 5).await).await;
    }
    let ask = format!("SELECT obj_description('{name}.processed_events'::regclass, 'pg_class')");
    let said: String = client.query_one(&ask, &[]).await.unwrap().get(0);
    assert!(said.starts_with("ours until 2099-01-01 semel: "), "{said}");
    assert_eq!(said.matches("semel: dropped before 20").count(), 1, "{said}");
}
