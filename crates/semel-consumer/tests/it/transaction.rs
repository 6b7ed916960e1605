//! Handlers that write in the transaction of the inbox, one event or a batch at a time, over PostgreSQL.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use deadpool_postgres::{Manager, Pool};
use semel_consumer::{
    Event, EventContext, Handler, Message, Mode, OnDeadLetter, Order,
    dead_letter::{DeadLetterReason, REDRIVEN_FROM_HEADER},
    memory::MemoryFaults,
    transaction_fn,
};
use semel_core::WorkError;
use semel_inbox::{DeadpoolTx, PgInbox};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_postgres::{Client, NoTls};

use crate::fixture::{Scene, message};

struct Database {
    client: Client,
    pool: Pool,
    schema: String,
}

impl Database {
    async fn new() -> Self {
        let url = semel_servers::needed("SEMEL_TEST_POSTGRES_URL");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = format!("consumer_{:016x}", rand::random::<u64>());
        let tables = format!(
            "CREATE SCHEMA {schema}; CREATE TABLE {schema}.effects (event text, attempt int)"
        );
        client.batch_execute(&tables).await.unwrap();
        let pool =
            Pool::builder(Manager::new(url.parse().unwrap(), NoTls)).max_size(8).build().unwrap();
        Self { client, pool, schema }
    }

    async fn inbox(&self) -> PgInbox<Pool> {
        let inbox = PgInbox::builder(self.pool.clone()).consumer("tests").schema(&self.schema);
        inbox.install(true).build().await.unwrap()
    }

    async fn effects(&self) -> Vec<String> {
        let rows = format!("SELECT event FROM {}.effects ORDER BY event", self.schema);
        let rows = self.client.query(&rows, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn recorded(&self) -> i64 {
        let count = format!("SELECT count(*) FROM {}.processed_events", self.schema);
        self.client.query_one(&count, &[]).await.unwrap().get(0)
    }

    async fn remove(self) {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.client.batch_execute(&drop).await.unwrap();
    }
}

/// Writes the event's id and then does what the payload says: `fail`, `retry` or nothing.
fn handler(schema: &str, runs: &Arc<AtomicU32>) -> impl Handler<DeadpoolTx> + use<> {
    let (insert, runs) = (format!("INSERT INTO {schema}.effects VALUES ($1, $2)"), runs.clone());
    transaction_fn(move |tx: &mut DeadpoolTx, event: Event<Value>, context: EventContext| {
        let (insert, runs) = (insert.clone(), runs.clone());
        Box::pin(async move {
            runs.fetch_add(1, SeqCst);
            let id = event.message.message_id.clone().unwrap_or_default();
            let attempt = i32::try_from(context.attempt()).unwrap_or(i32::MAX);
            tx.execute(&insert, &[&id, &attempt]).await?;
            match event.data.as_str() {
                Some("fail") => Err(WorkError::failure("refused", "it cannot be done")),
                Some("retry") if context.attempt() < 3 => Err(WorkError::retry("not yet")),
                _ => Ok(Value::from("stored")),
            }
        })
    })
}

fn says(id: &str, what: &str) -> Message {
    Message::new("users", format!("{what:?}")).with_id(id)
}

#[tokio::test]
async fn effect_and_record_commit_together_and_a_copy_writes_nothing() {
    for batch in [1, 50] {
        let (database, runs) = (Database::new().await, Arc::default());
        let ids = ["a", "b", "c"];
        let scene = Scene::new(ids.iter().chain(&ids).map(|id| says(id, "ok")));
        let handler = handler(&database.schema, &runs);
        let inbox = database.inbox().await;
        let builder = scene.builder().transactional_batch(inbox, handler, batch);
        builder.build().unwrap().run().await.unwrap();
        assert_eq!(database.effects().await, ids, "batch {batch}");
        assert_eq!((database.recorded().await, runs.load(SeqCst), scene.acks()), (3, 3, 6));
        database.remove().await;
    }
}

#[tokio::test]
async fn a_failure_for_good_writes_nothing_and_is_one_dead_letter() {
    for batch in [1, 50] {
        let (database, runs) = (Database::new().await, Arc::default());
        let scene = Scene::new([says("a", "ok"), says("b", "fail"), says("c", "ok")]);
        scene.source.duplicate(2);
        let handler = handler(&database.schema, &runs);
        let inbox = database.inbox().await;
        let builder = scene.builder().transactional_batch(inbox, handler, batch);
        builder.build().unwrap().run().await.unwrap();
        assert_eq!(database.effects().await, ["a", "c"], "batch {batch}");
        let letters = scene.letters();
        assert_eq!((letters.len(), letters[0].class.as_str()), (1, "refused"));
        assert_eq!(database.recorded().await, 3, "the failure is recorded, too");
        database.remove().await;
    }
}

#[tokio::test]
async fn a_retry_rolls_back_and_runs_in_a_new_transaction() {
    for batch in [1, 50] {
        let (database, runs) = (Database::new().await, Arc::default());
        let scene = Scene::new([says("a", "retry").with_ordering_key("k"), says("b", "ok")]);
        let handler = handler(&database.schema, &runs);
        let inbox = database.inbox().await;
        let builder = scene.builder().transactional_batch(inbox, handler, batch);
        builder.build().unwrap().run().await.unwrap();
        assert_eq!(database.effects().await, ["a", "b"], "batch {batch}");
        assert_eq!(runs.load(SeqCst), 4, "three attempts at a, one at b");
        database.remove().await;
    }
}

#[tokio::test]
async fn a_redriven_event_runs_again_although_its_failure_is_recorded() {
    for batch in [1, 50] {
        let (database, runs) = (Database::new().await, Arc::default());
        let scene = Scene::new([says("a", "fail"), says("b", "ok")]);
        let run = async |message: Option<Message>| {
            message.map(|message| scene.source.publish(message));
            let handler = handler(&database.schema, &runs);
            let inbox = database.inbox().await;
            let builder = scene.builder().transactional_batch(inbox, handler, batch);
            builder.build().unwrap().run().await.unwrap();
            runs.load(SeqCst)
        };
        assert_eq!(run(None).await, 2);
        assert_eq!(run(Some(says("a", "fail"))).await, 2, "an ordinary copy does not run");
        let redriven = |id| says(id, "ok").with_header(REDRIVEN_FROM_HEADER, "letter-1");
        assert_eq!(run(Some(redriven("a"))).await, 3, "batch {batch}");
        assert_eq!(run(Some(redriven("a"))).await, 3, "a success never runs again");
        assert_eq!(run(Some(redriven("b"))).await, 3, "a success never runs again");
        assert_eq!(database.effects().await, ["a", "b"]);
        database.remove().await;
    }
}

#[tokio::test]
async fn an_event_that_the_inbox_cannot_hold_is_a_dead_letter() {
    let (database, runs) = (Database::new().await, Arc::default());
    let scene = Scene::new([says(&"x".repeat(300), "ok"), message("a")]);
    let handler = handler(&database.schema, &runs);
    let builder = scene.builder().transactional(database.inbox().await, handler);
    builder.build().unwrap().run().await.unwrap();
    assert_eq!(scene.letters()[0].reason, DeadLetterReason::Invalid);
    assert_eq!(database.effects().await, ["a"]);
    database.remove().await;
}

/// Deliveries that end before the handler runs, as those of a process that dies.
async fn lose_deliveries(scene: &Scene, count: u32) {
    for _ in 0..count {
        let mut taken = semel_consumer::Source::receive(&scene.source, 1).await.unwrap();
        taken.remove(0).nack(std::time::Duration::ZERO).await.unwrap();
    }
}

#[tokio::test]
async fn an_event_whose_deliveries_were_lost_is_still_attempted() {
    for batch in [1, 50] {
        let (database, runs) = (Database::new().await, Arc::default());
        let scene = Scene::new([says("a", "ok")]);
        lose_deliveries(&scene, 10).await;
        let handler = handler(&database.schema, &runs);
        let inbox = database.inbox().await;
        let builder = scene.builder().max_attempts(3).transactional_batch(inbox, handler, batch);
        builder.build().unwrap().run().await.unwrap();
        assert_eq!(database.effects().await, ["a"], "batch {batch}");
        assert_eq!(scene.letters().len(), 0);
        database.remove().await;
    }
}

#[tokio::test]
async fn attempts_that_leave_no_trace_in_the_transaction_are_limited() {
    let (database, runs) = (Database::new().await, Arc::default());
    let scene = Scene::new([says("a", "ok")]);
    lose_deliveries(&scene, 3).await;
    let inbox = database.inbox().await;
    // Each counted attempt killed its process.
    let event = semel_inbox::InboxEvent::new("idempotency:a", "users").unwrap();
    for attempt in 1..=3 {
        let counted = inbox.count_attempt(&event).await.unwrap().unwrap();
        assert_eq!(counted.number(), attempt);
    }
    let handler = handler(&database.schema, &runs);
    let builder = scene.builder().max_attempts(3).transactional(inbox, handler);
    builder.build().unwrap().run().await.unwrap();
    assert_eq!(runs.load(SeqCst), 0);
    assert_eq!(scene.letters()[0].reason, DeadLetterReason::AttemptsExhausted);
    database.remove().await;
}

/// As Kafka, whose consumers cannot know what a process that died was handed.
#[tokio::test]
async fn attempts_are_limited_without_a_count_of_deliveries() {
    for batch in [1, 50] {
        let (database, runs) = (Database::new().await, Arc::default());
        let scene = Scene::new([says("poison", "ok"), says("a", "ok"), says("b", "ok")]);
        scene.source.inject(MemoryFaults { hides_deliveries: true, ..MemoryFaults::NONE });
        let inbox = database.inbox().await;
        // Three processes died of it.
        let event = semel_inbox::InboxEvent::new("idempotency:poison", "users").unwrap();
        for attempt in 1..=3 {
            let counted = inbox.count_attempt(&event).await.unwrap().unwrap();
            assert_eq!(counted.number(), attempt);
        }
        let run = async || {
            let inbox = database.inbox().await;
            let handler = handler(&database.schema, &runs);
            let builder =
                scene.builder().max_attempts(3).transactional_batch(inbox, handler, batch);
            builder.build().unwrap().run().await.unwrap();
        };
        run().await;
        assert_eq!(database.effects().await, ["a", "b"], "batch {batch}");
        let letters = scene.letters();
        assert_eq!(letters[0].reason, DeadLetterReason::AttemptsExhausted, "batch {batch}");
        assert_eq!(letters.len(), 1, "batch {batch}");
        // Copies of an event that is recorded are no attempts, however many there are.
        for _ in 0..5 {
            scene.source.publish(says("a", "ok"));
            run().await;
        }
        assert_eq!((runs.load(SeqCst), scene.letters().len()), (2, 1), "batch {batch}");
        // What an operator publishes again has attempts of its own.
        scene.source.publish(says("poison", "ok").with_header(REDRIVEN_FROM_HEADER, "letter-1"));
        run().await;
        assert_eq!(database.effects().await, ["a", "b", "poison"], "batch {batch}");
        assert_eq!(scene.letters().len(), 1, "batch {batch}");
        database.remove().await;
    }
}

/// A handler that kills its process with the event `poison`, as far as one process can show that: it never returns.
fn deadly(schema: &str, dies: &Arc<Notify>) -> impl Handler<DeadpoolTx> + use<> {
    let (insert, dies) = (format!("INSERT INTO {schema}.effects VALUES ($1, 1)"), dies.clone());
    transaction_fn(move |tx: &mut DeadpoolTx, event: Event<Value>, _: EventContext| {
        let (insert, dies) = (insert.clone(), dies.clone());
        Box::pin(async move {
            let id = event.message.message_id.clone().unwrap_or_default();
            if id == "poison" {
                dies.notify_one();
                std::future::pending::<()>().await;
            }
            tx.execute(&insert, &[&id]).await?;
            Ok::<_, WorkError>(())
        })
    })
}

/// Runs processes that die of the event `poison`, until one of them ends. Returns how many died.
async fn deaths_by_poison(
    scene: &Scene,
    database: &Database,
    max_attempts: u32,
    batch: usize,
) -> u32 {
    let dies = Arc::new(Notify::new());
    for deaths in 0..10 {
        let (inbox, handler) = (database.inbox().await, deadly(&database.schema, &dies));
        let builder = scene.builder().max_attempts(max_attempts).concurrency(1);
        let consumer = builder.transactional_batch(inbox, handler, batch).build().unwrap();
        let mut process = tokio::spawn(consumer.run());
        tokio::select! {
            ended = &mut process => {
                ended.unwrap().unwrap();
                return deaths;
            }
            () = dies.notified() => process.abort(),
        }
        let _ = process.await;
        scene.source.take_back();
    }
    panic!("the event has no limit");
}

#[tokio::test]
async fn an_event_that_kills_its_process_makes_no_dead_letter_of_its_batch() {
    for (max_attempts, batch) in [(1, 50), (3, 50), (3, 1)] {
        let database = Database::new().await;
        let messages = ["a", "poison", "b", "c"].map(|id| says(id, "ok"));
        let scene = Scene::new(messages);
        scene.source.inject(MemoryFaults { hides_deliveries: true, ..MemoryFaults::NONE });
        let deaths = deaths_by_poison(&scene, &database, max_attempts, batch).await;
        // In a batch, the first death cannot be attributed to one of its events.
        let together = u32::from(batch > 1);
        assert_eq!(deaths, max_attempts + together, "batch {batch}");
        assert_eq!(database.effects().await, ["a", "b", "c"], "batch {batch}");
        let letters = scene.letters();
        let ids: Vec<_> = letters.iter().map(|it| it.event_id.as_deref().unwrap()).collect();
        assert_eq!(ids, ["poison"], "batch {batch}, at most {max_attempts} attempts");
        assert_eq!(letters[0].reason, DeadLetterReason::AttemptsExhausted);
        database.remove().await;
    }
}

#[tokio::test]
async fn many_copies_in_a_batch_are_one_attempt() {
    let (database, runs) = (Database::new().await, Arc::default());
    let scene = Scene::new(["a", "a", "a", "a", "a", "b"].map(|id| says(id, "ok")));
    scene.source.inject(MemoryFaults { hides_deliveries: true, ..MemoryFaults::NONE });
    let handler = handler(&database.schema, &runs);
    let builder = scene.builder().max_attempts(2).concurrency(1);
    let builder = builder.transactional_batch(database.inbox().await, handler, 50);
    builder.build().unwrap().run().await.unwrap();
    assert_eq!(database.effects().await, ["a", "b"]);
    assert_eq!((runs.load(SeqCst), scene.letters().len(), scene.acks()), (2, 0, 6));
    assert_eq!(database.recorded().await, 2, "no attempt stays counted");
    database.remove().await;
}

#[tokio::test]
async fn failed_attempts_of_a_batch_are_counted() {
    let (database, runs) = (Database::new().await, Arc::default());
    let scene = Scene::new([says("a", "retry"), says("a", "retry"), says("b", "ok")]);
    scene.source.inject(MemoryFaults { hides_deliveries: true, ..MemoryFaults::NONE });
    let handler = handler(&database.schema, &runs);
    let builder = scene.builder().max_attempts(2).concurrency(1);
    let builder = builder.transactional_batch(database.inbox().await, handler, 50);
    builder.build().unwrap().run().await.unwrap();
    assert_eq!(database.effects().await, ["b"]);
    assert_eq!((runs.load(SeqCst), scene.letters().len()), (3, 1), "two attempts at a, one at b");
    assert_eq!(database.recorded().await, 2, "no attempt stays counted");
    database.remove().await;
}

#[tokio::test]
async fn a_conflict_between_transactions_is_no_failed_attempt() {
    let database = Database::new().await;
    let tries: Arc<AtomicU32> = Arc::default();
    let counted = tries.clone();
    let handler = transaction_fn(move |tx: &mut DeadpoolTx, _: Event<Value>, _: EventContext| {
        let tries = counted.clone();
        Box::pin(async move {
            if tries.fetch_add(1, SeqCst) == 0 {
                let conflict =
                    "DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$";
                tx.batch_execute(conflict).await?;
            }
            Ok::<_, WorkError>(())
        })
    });
    let scene = Scene::new([says("a", "ok")]);
    let builder = scene.builder().max_attempts(1).transactional(database.inbox().await, handler);
    builder.build().unwrap().run().await.unwrap();
    assert_eq!((tries.load(SeqCst), scene.letters().len(), scene.acks()), (2, 0, 1));
    database.remove().await;
}

#[tokio::test]
async fn a_success_whose_acknowledgement_was_lost_often_is_no_dead_letter() {
    for batch in [1, 50] {
        let (database, runs) = (Database::new().await, Arc::default());
        let scene = Scene::new([says("a", "ok")]);
        let run = async || {
            let handler = handler(&database.schema, &runs);
            let inbox = database.inbox().await;
            let builder =
                scene.builder().max_attempts(1).transactional_batch(inbox, handler, batch);
            builder.build().unwrap().run().await.unwrap();
        };
        run().await;
        scene.source.publish(says("a", "ok"));
        lose_deliveries(&scene, 5).await;
        run().await;
        scene.source.publish(Message { given_up: true, ..says("a", "ok") });
        run().await;
        assert_eq!(
            (runs.load(SeqCst), scene.letters().len(), scene.acks()),
            (1, 0, 3),
            "batch {batch}"
        );
        database.remove().await;
    }
}

#[tokio::test]
async fn settings_without_an_effect_in_transactions_are_refused() {
    let (database, runs) = (Database::new().await, Arc::default());
    let scene = Scene::new([]);
    let inbox = database.inbox().await;
    let handler = || handler(&database.schema, &runs);
    let refused = [
        scene.builder().mode(Mode::TrackIds).transactional(inbox.clone(), handler()),
        scene.builder().on_dead_letter(OnDeadLetter::Park).transactional(inbox.clone(), handler()),
        scene.builder().order(Order::Strict).transactional_batch(inbox.clone(), handler(), 10),
    ];
    for builder in refused {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains("no effect with transactions"), "{error}");
    }
    database.remove().await;
}
