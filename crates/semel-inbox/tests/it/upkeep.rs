//! Upkeep: by itself, by many at once, and from outside.

use std::{
    error::Error,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_core::{Classifier, DefaultClassifier};
use semel_inbox::{Done, InboxKeeper, InboxPool, InboxVariant, PgInbox, Upkeep, telemetry::name};
use semel_store_postgres::PostgresStore;
use tokio_postgres::Client;

use crate::{
    over_pools,
    scene::{Scene, dated, deadpool_pool},
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SOON: Duration = Duration::from_millis(20);

over_pools! {
    an_inbox_keeps_itself_small_and_shows_how_large_it_is
    upkeep_ends_with_its_handle
    upkeep_that_failed_is_tried_again
    many_nodes_may_keep_up_at_once
    what_a_killed_process_left_half_dropped_is_dropped
}

/// Metrics of all tests of this process; each has a table of its own.
fn metrics() -> &'static Snapshotter {
    static METRICS: OnceLock<Snapshotter> = OnceLock::new();
    METRICS.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let metrics = recorder.snapshotter();
        recorder.install().unwrap();
        metrics
    })
}

/// The gauge of this table.
fn gauge(name: &str, table: &str) -> Option<f64> {
    let all = metrics().snapshot().into_vec();
    all.into_iter().find_map(|(key, _, _, value)| {
        let key = key.key();
        let is_it = key.name() == name && key.labels().any(|it| it.value() == table);
        match value {
            DebugValue::Gauge(value) if is_it => Some(value.into_inner()),
            _ => None,
        }
    })
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An event that was handled so many days ago.
async fn handled<P: InboxPool + Clone>(scene: &Scene<P>, id: &str, ago: i32) {
    let row = format!(
        "INSERT INTO {}.processed_events (consumer, event_id, event_type, processed_at)
         VALUES ('test', '{id}', 't', now() - {ago} * interval '1 day')",
        scene.schema.name
    );
    scene.client().await.batch_execute(&row).await.unwrap();
}

async fn an_inbox_keeps_itself_small_and_shows_how_large_it_is<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + 'static,
{
    metrics();
    let inbox = scene.builder().retention(10 * DAY).build().await.unwrap();
    handled(&scene, "young", 5).await;
    handled(&scene, "old", 20).await;
    let task = inbox.keep_up(SOON);
    until("the old event is gone", async || scene.count("processed_events").await == 1).await;
    let table = format!("{}.processed_events", scene.schema.name);
    let days = 24.0 * 3600.0;
    until("the age of the oldest is shown", async || {
        gauge(name::PROCESSED_EVENTS_OLDEST, &table)
            .is_some_and(|age| (5.0 * days..6.0 * days).contains(&age))
    })
    .await;
    until("the bytes are shown", async || {
        gauge(name::PROCESSED_EVENTS_BYTES, &table).is_some_and(|bytes| bytes > 8192.0)
    })
    .await;
    assert!(gauge(name::PROCESSED_EVENTS_ROWS, &table).is_some());
    drop(task);
}

async fn upkeep_ends_with_its_handle<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + 'static,
{
    // Part of the inbox, and of every handle on it.
    let probe = Arc::new(());
    let part = probe.clone();
    let classifier = move |error: &(dyn Error + 'static)| {
        let _ = &part;
        DefaultClassifier.classify(error)
    };
    let builder = scene.builder().classifier(classifier).retention(10 * DAY);
    let inbox = builder.build().await.unwrap();
    handled(&scene, "old", 20).await;
    let task = inbox.keep_up(SOON);
    drop(inbox);
    until("the old event is gone", async || scene.count("processed_events").await == 0).await;
    assert_eq!(Arc::strong_count(&probe), 2, "the task has the inbox");
    drop(task);
    until("the task has ended", async || Arc::strong_count(&probe) == 1).await;
}

async fn upkeep_that_failed_is_tried_again<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + 'static,
{
    metrics();
    let inbox = scene.builder().retention(10 * DAY).build().await.unwrap();
    handled(&scene, "old", 20).await;
    let (client, name) = (scene.client().await, &scene.schema.name);
    let renamed = format!("ALTER TABLE {name}.processed_events RENAME TO elsewhere");
    client.batch_execute(&renamed).await.unwrap();
    assert!(inbox.upkeep().await.unwrap_err().to_string().contains("inbox.install()"));
    let _task = inbox.keep_up(SOON);
    let scans = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let before: i64 = client.query_one(scans, &[]).await.unwrap().get(0);
    until("a turn failed", async || {
        scene.client().await.query_one(scans, &[]).await.unwrap().get::<_, i64>(0) > before
    })
    .await;
    let back = format!("ALTER TABLE {name}.elsewhere RENAME TO processed_events");
    client.batch_execute(&back).await.unwrap();
    until("the old event is gone", async || scene.count("processed_events").await == 0).await;
}

/// A table in partitions, and an inbox for which so many of them are too old.
async fn with_old_partitions<P: InboxPool + Clone>(scene: &Scene<P>, old: u64) -> PgInbox<P> {
    let days = |days: u64| {
        let retention = u32::try_from(days).unwrap() * DAY;
        scene.builder().variant(InboxVariant::Partitioned).retention(retention).build()
    };
    let (long, client) = (days(20 + old).await.unwrap(), scene.client().await);
    // One more day is kept than asked for.
    for ago in 12..12 + i32::try_from(old).unwrap() {
        long.process(&dated(&client, ago).await, async |_, _| Ok(())).await.unwrap();
    }
    days(10).await.unwrap()
}

async fn many_nodes_may_keep_up_at_once<P: InboxPool + Clone>(scene: Scene<P>) {
    let inbox = with_old_partitions(&scene, 6).await;
    let done = join_all((0..4).map(|_| inbox.upkeep())).await;
    let dropped: u32 = done.into_iter().map(|it| it.unwrap().dropped).sum();
    // Whoever gave way to another leaves what that one leaves.
    let rest = inbox.upkeep().await.unwrap().dropped;
    assert_eq!(dropped + rest, 6);
    assert_eq!(inbox.upkeep().await.unwrap(), Upkeep::default(), "nothing is left to do");
}

/// Who ends what a killed process began to detach locks the table, and waits for everybody who reads just then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_made_while_another_is_detached() {
    let scene = Scene::over_deadpool().await;
    with_old_partitions(&scene, 1).await;
    let (mut client, name) = (scene.client().await, &scene.schema.name);
    let waits = async |what: &str| {
        let waits =
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
        let like = format!("%{name}%{what}%");
        let row = scene.client().await.query_opt(waits, &[&like]).await.unwrap();
        row.map(|row| row.get::<_, i32>(0))
    };
    let day = dated(&client, 12).await.day().unwrap().replace('-', "");
    let detach = |client: Client, how: &str| {
        let part = format!("{name}.processed_events_p{day}");
        let detach = format!("ALTER TABLE {name}.processed_events DETACH PARTITION {part} {how}");
        tokio::spawn(async move { client.batch_execute(&detach).await })
    };
    let reads = client.transaction().await.unwrap();
    reads.batch_execute(&format!("SELECT FROM {name}.processed_events")).await.unwrap();
    let killed = detach(scene.client().await, "CONCURRENTLY");
    until("a partition is being detached", async || waits("CONCURRENTLY").await.is_some()).await;
    let pid = waits("CONCURRENTLY").await.unwrap();
    reads.query_one("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    killed.await.unwrap().unwrap_err();
    reads.rollback().await.unwrap();
    // Holds up who attaches, in sessions that ask for it.
    let lock = rand::random::<i64>();
    let hold = format!(
        "CREATE FUNCTION {name}.hold() RETURNS event_trigger LANGUAGE plpgsql SET lock_timeout = 0 AS
           $$ BEGIN PERFORM pg_advisory_xact_lock({lock}); END $$;
         CREATE EVENT TRIGGER {name} ON ddl_command_start WHEN TAG IN ('ALTER TABLE')
           EXECUTE FUNCTION {name}.hold();
         ALTER EVENT TRIGGER {name} ENABLE REPLICA;
         SELECT pg_advisory_lock({lock})"
    );
    client.batch_execute(&hold).await.unwrap();
    let pool = deadpool_pool(&scene.schema.url_with("session_replication_role=replica"));
    let maker = PgInbox::builder(pool).schema(name).variant(InboxVariant::Partitioned);
    let (maker, event) = (maker.build().await.unwrap(), dated(&client, -20).await);
    let made = tokio::spawn(async move { maker.process(&event, async |_, _| Ok(())).await });
    until("a partition is being attached", async || waits("ATTACH").await.is_some()).await;
    let detached = detach(scene.client().await, "FINALIZE");
    until("detaching is being ended", async || waits("DETACH").await.is_some()).await;
    client.batch_execute(&format!("SELECT pg_advisory_unlock({lock})")).await.unwrap();
    assert_eq!(made.await.unwrap().unwrap(), Done::Now(()));
    detached.await.unwrap().expect("nobody waits for each other");
}

/// Detaching and dropping are two statements, and between them a process may end.
async fn what_a_killed_process_left_half_dropped_is_dropped<P: InboxPool + Clone>(scene: Scene<P>) {
    let inbox = with_old_partitions(&scene, 2).await;
    let (client, name) = (scene.client().await, &scene.schema.name);
    let part = async |ago| {
        let event = dated(&client, ago).await;
        format!("{name}.processed_events_p{}", event.day().unwrap().replace('-', ""))
    };
    let (left, archived) = (part(12).await, part(13).await);
    for part in [&left, &archived] {
        let detach = format!("ALTER TABLE {name}.processed_events DETACH PARTITION {part}");
        client.batch_execute(&detach).await.unwrap();
    }
    let mark = format!("COMMENT ON TABLE {left} IS 'semel: past its retention, to be dropped'");
    client.batch_execute(&mark).await.unwrap();
    assert_eq!(inbox.upkeep().await.unwrap().dropped, 1);
    let is_there = async |part: &str| {
        let there = client.query_one("SELECT to_regclass($1::text) IS NOT NULL", &[&part]).await;
        there.unwrap().get::<_, bool>(0)
    };
    assert!(!is_there(&left).await);
    assert!(is_there(&archived).await, "what an operator detached is the operator's");
}

#[tokio::test]
async fn a_keeper_finds_out_what_a_table_is() {
    let scene = Scene::over_sqlx().await;
    let name = &scene.schema.name;
    let keeper = async |table: &str| {
        let connecting = PostgresStore::builder(&scene.schema.url).maintenance_connection();
        InboxKeeper::open(connecting, &format!("{name}.{table}"), 10 * DAY).await
    };
    let variants = [InboxVariant::Minimal, InboxVariant::Full, InboxVariant::Partitioned];
    for (table, variant) in ["minimal", "full", "parts"].into_iter().zip(variants) {
        scene.builder().table(table).variant(variant).build().await.unwrap();
        assert_eq!(keeper(table).await.unwrap().variant(), variant);
    }
    let day = dated(&scene.client().await, 0).await.day().unwrap().replace('-', "");
    for (table, why) in [
        ("nothing".to_owned(), "there is no table"),
        ("effects".to_owned(), "not the table of an inbox"),
        (format!("parts_p{day}"), "is a partition"),
        ("a-b".to_owned(), "table: use 1 to 48 characters"),
    ] {
        let refused = keeper(&table).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{table}: {refused}");
    }
}
