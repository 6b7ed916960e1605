//! Maintenance: as a task, by many processes at once, and by an operator.

use std::{
    error::Error,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_core::{Classifier, DefaultClassifier};
use semel_inbox::{
    Done, InboxMaintenance, InboxPool, InboxVariant, MaintenanceReport, PgInbox, telemetry::name,
};
use semel_store_postgres::PostgresStore;
use tokio_postgres::Client;

use crate::{
    fixture::{InboxFixture, deadpool_pool, event_of_day},
    over_pools,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SOON: Duration = Duration::from_millis(20);

over_pools! {
    maintain_every_purges_old_events_and_sets_the_gauges
    maintenance_ends_with_its_handle
    maintenance_that_failed_is_tried_again
    many_nodes_may_run_maintenance_at_once
    a_partition_that_a_killed_process_left_half_dropped_is_dropped
}

/// The metrics of all tests of this process. Each test has its own table, and so its own label.
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

/// Inserts an event that was processed `ago` days ago.
async fn handled<P: InboxPool + Clone>(fixture: &InboxFixture<P>, id: &str, ago: i32) {
    let row = format!(
        "INSERT INTO {}.processed_events (consumer, event_id, event_type, processed_at)
         VALUES ('test', '{id}', 't', now() - {ago} * interval '1 day')",
        fixture.schema.name
    );
    fixture.client().await.batch_execute(&row).await.unwrap();
}

async fn maintain_every_purges_old_events_and_sets_the_gauges<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + 'static,
{
    metrics();
    let inbox = fixture.builder().retention(10 * DAY).build().await.unwrap();
    handled(&fixture, "young", 5).await;
    handled(&fixture, "old", 20).await;
    let task = inbox.maintain_every(SOON);
    until("the old event is gone", async || fixture.count("processed_events").await == 1).await;
    let table = format!("{}.processed_events", fixture.schema.name);
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

async fn maintenance_ends_with_its_handle<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + 'static,
{
    // Owned by the inbox, and so by every clone of it.
    let probe = Arc::new(());
    let part = probe.clone();
    let classifier = move |error: &(dyn Error + 'static)| {
        let _ = &part;
        DefaultClassifier.classify(error)
    };
    let builder = fixture.builder().classifier(classifier).retention(10 * DAY);
    let inbox = builder.build().await.unwrap();
    handled(&fixture, "old", 20).await;
    let task = inbox.maintain_every(SOON);
    drop(inbox);
    until("the old event is gone", async || fixture.count("processed_events").await == 0).await;
    assert_eq!(Arc::strong_count(&probe), 2, "the task has the inbox");
    drop(task);
    until("the task has ended", async || Arc::strong_count(&probe) == 1).await;
}

async fn maintenance_that_failed_is_tried_again<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + 'static,
{
    metrics();
    let inbox = fixture.builder().retention(10 * DAY).build().await.unwrap();
    handled(&fixture, "old", 20).await;
    let (client, name) = (fixture.client().await, &fixture.schema.name);
    let renamed = format!("ALTER TABLE {name}.processed_events RENAME TO elsewhere");
    client.batch_execute(&renamed).await.unwrap();
    assert!(inbox.maintain().await.unwrap_err().to_string().contains("inbox.install()"));
    let _task = inbox.maintain_every(SOON);
    let scans = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let before: i64 = client.query_one(scans, &[]).await.unwrap().get(0);
    until("a turn failed", async || {
        fixture.client().await.query_one(scans, &[]).await.unwrap().get::<_, i64>(0) > before
    })
    .await;
    let back = format!("ALTER TABLE {name}.elsewhere RENAME TO processed_events");
    client.batch_execute(&back).await.unwrap();
    until("the old event is gone", async || fixture.count("processed_events").await == 0).await;
}

/// A partitioned table, and an inbox whose retention has passed for `old` of its partitions.
async fn with_old_partitions<P: InboxPool + Clone>(
    fixture: &InboxFixture<P>,
    old: u64,
) -> PgInbox<P> {
    let days = |days: u64| {
        let retention = u32::try_from(days).unwrap() * DAY;
        fixture.builder().variant(InboxVariant::Partitioned).retention(retention).build()
    };
    let (long, client) = (days(20 + old).await.unwrap(), fixture.client().await);
    // The inbox keeps one more day than the retention.
    for ago in 12..12 + i32::try_from(old).unwrap() {
        long.process(&event_of_day(&client, ago).await, async |_, _| Ok(())).await.unwrap();
    }
    days(10).await.unwrap()
}

async fn many_nodes_may_run_maintenance_at_once<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = with_old_partitions(&fixture, 6).await;
    let done = join_all((0..4).map(|_| inbox.maintain())).await;
    let dropped: u32 = done.into_iter().map(|it| it.unwrap().dropped).sum();
    // A process skips partitions that another one drops, so some may be left.
    let rest = inbox.maintain().await.unwrap().dropped;
    assert_eq!(dropped + rest, 6);
    assert_eq!(
        inbox.maintain().await.unwrap(),
        MaintenanceReport::default(),
        "nothing is left to do"
    );
}

/// DETACH … FINALIZE, which completes what a killed process began, locks the table and waits for all current readers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_made_while_another_is_detached() {
    let fixture = InboxFixture::over_deadpool().await;
    with_old_partitions(&fixture, 1).await;
    let (mut client, name) = (fixture.client().await, &fixture.schema.name);
    let waits = async |what: &str| {
        let waits =
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
        let like = format!("%{name}%{what}%");
        let row = fixture.client().await.query_opt(waits, &[&like]).await.unwrap();
        row.map(|row| row.get::<_, i32>(0))
    };
    let day = event_of_day(&client, 12).await.day().unwrap().replace('-', "");
    let detach = |client: Client, how: &str| {
        let part = format!("{name}.processed_events_p{day}");
        let detach = format!("ALTER TABLE {name}.processed_events DETACH PARTITION {part} {how}");
        tokio::spawn(async move { client.batch_execute(&detach).await })
    };
    let reads = client.transaction().await.unwrap();
    reads.batch_execute(&format!("SELECT FROM {name}.processed_events")).await.unwrap();
    let killed = detach(fixture.client().await, "CONCURRENTLY");
    until("a partition is being detached", async || waits("CONCURRENTLY").await.is_some()).await;
    let pid = waits("CONCURRENTLY").await.unwrap();
    reads.query_one("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    killed.await.unwrap().unwrap_err();
    reads.rollback().await.unwrap();
    // Blocks ALTER TABLE in sessions with `session_replication_role = replica`.
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
    let pool = deadpool_pool(&fixture.schema.url_with("session_replication_role=replica"));
    let maker = PgInbox::builder(pool).schema(name).variant(InboxVariant::Partitioned);
    let (maker, event) = (maker.build().await.unwrap(), event_of_day(&client, -20).await);
    let made = tokio::spawn(async move { maker.process(&event, async |_, _| Ok(())).await });
    until("a partition is being attached", async || waits("ATTACH").await.is_some()).await;
    let detached = detach(fixture.client().await, "FINALIZE");
    until("detaching is being ended", async || waits("DETACH").await.is_some()).await;
    client.batch_execute(&format!("SELECT pg_advisory_unlock({lock})")).await.unwrap();
    assert_eq!(made.await.unwrap().unwrap(), Done::Now(()));
    detached.await.unwrap().expect("the two do not wait for each other");
}

/// Detaching and dropping are two statements, and a process may be killed between them.
async fn a_partition_that_a_killed_process_left_half_dropped_is_dropped<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = with_old_partitions(&fixture, 2).await;
    let (client, name) = (fixture.client().await, &fixture.schema.name);
    let part = async |ago| {
        let event = event_of_day(&client, ago).await;
        format!("{name}.processed_events_p{}", event.day().unwrap().replace('-', ""))
    };
    let (left, archived) = (part(12).await, part(13).await);
    for part in [&left, &archived] {
        let detach = format!("ALTER TABLE {name}.processed_events DETACH PARTITION {part}");
        client.batch_execute(&detach).await.unwrap();
    }
    let mark = format!("COMMENT ON TABLE {left} IS 'semel: past its retention, to be dropped'");
    client.batch_execute(&mark).await.unwrap();
    assert_eq!(inbox.maintain().await.unwrap().dropped, 1);
    let is_there = async |part: &str| {
        let there = client.query_one("SELECT to_regclass($1::text) IS NOT NULL", &[&part]).await;
        there.unwrap().get::<_, bool>(0)
    };
    assert!(!is_there(&left).await);
    assert!(is_there(&archived).await, "a partition that an operator detached is not dropped");
}

#[tokio::test]
async fn an_operator_detects_the_variant_of_a_table() {
    let fixture = InboxFixture::over_sqlx().await;
    let name = &fixture.schema.name;
    let opened = async |table: &str| {
        let connecting = PostgresStore::builder(&fixture.schema.url).maintenance_connection();
        InboxMaintenance::open(connecting, &format!("{name}.{table}"), 10 * DAY).await
    };
    let variants = [InboxVariant::Minimal, InboxVariant::Full, InboxVariant::Partitioned];
    for (table, variant) in ["minimal", "full", "parts"].into_iter().zip(variants) {
        fixture.builder().table(table).variant(variant).build().await.unwrap();
        assert_eq!(opened(table).await.unwrap().variant(), variant);
    }
    let day = event_of_day(&fixture.client().await, 0).await.day().unwrap().replace('-', "");
    for (table, why) in [
        ("nothing".to_owned(), "there is no table"),
        ("effects".to_owned(), "not the table of an inbox"),
        (format!("parts_p{day}"), "is a partition"),
        ("a-b".to_owned(), "table: use 1 to 48 characters"),
    ] {
        let refused = opened(&table).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{table}: {refused}");
    }
}
