//! The tables: their columns and indexes, purging, and partitions.

use std::time::Duration;

use semel_inbox::{Done, InboxError, InboxPool, InboxVariant, MaintenanceReport};

use crate::{
    fixture::{InboxFixture, event, event_of_day},
    over_pools,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

over_pools! {
    the_minimal_table_is_as_published
    ids_that_do_not_fit_the_table_are_refused_before_anything_happens
    old_events_are_purged_in_batches
    old_partitions_are_dropped_and_new_ones_made
    an_event_older_than_the_retention_is_refused
    a_missing_partition_is_made
    many_nodes_may_install_at_once
    a_dropped_partition_is_not_created_again
    a_consumer_purges_only_its_own
    statistics_have_rows_bytes_and_age
}

async fn the_minimal_table_is_as_published<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    fixture.inbox(InboxVariant::Minimal).await;
    let client = fixture.client().await;
    let columns = "SELECT column_name || ' ' || data_type || coalesce('(' || character_maximum_length || ')', '')
        || ' ' || is_nullable || coalesce(' ' || column_default, '') FROM information_schema.columns
        WHERE table_schema = $1 AND table_name = 'processed_events' ORDER BY ordinal_position";
    let columns = client.query(columns, &[&fixture.schema.name]).await.unwrap();
    let columns: Vec<String> = columns.iter().map(|row| row.get(0)).collect();
    let expected = [
        "event_id uuid NO",
        "event_type character varying(100) NO",
        "processed_at timestamp with time zone NO now()",
    ];
    assert_eq!(columns, expected);
    let indexes = "SELECT indexname::text FROM pg_indexes WHERE schemaname = $1 ORDER BY 1";
    let indexes = client.query(indexes, &[&fixture.schema.name]).await.unwrap();
    let indexes: Vec<String> = indexes.iter().map(|row| row.get(0)).collect();
    let expected =
        ["idx_processed_events_processed_at", "idx_processed_events_type", "processed_events_pkey"];
    assert_eq!(indexes, expected);
}

async fn ids_that_do_not_fit_the_table_are_refused_before_anything_happens<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let order = semel_inbox::InboxEvent::new("order-42", "OrderPlaced").unwrap();
    let inbox =
        fixture.builder().table("minimal").variant(InboxVariant::Minimal).build().await.unwrap();
    let refused = inbox.process::<(), _>(&order, async |_, _| panic!("it ran")).await.unwrap_err();
    assert!(refused.to_string().contains("UUID"), "{refused}");
    let inbox = fixture.inbox(InboxVariant::Partitioned).await;
    let refused = inbox.process::<(), _>(&order, async |_, _| panic!("it ran")).await.unwrap_err();
    assert!(refused.to_string().contains("occurred_on"), "{refused}");
}

async fn old_events_are_purged_in_batches<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.builder().retention(10 * DAY).build().await.unwrap();
    let rows = format!(
        "INSERT INTO {}.processed_events (consumer, event_id, event_type, processed_at)
         SELECT 'test', n::text, 't', now() - n * interval '1 day' FROM generate_series(1, 20) AS n",
        fixture.schema.name
    );
    fixture.client().await.batch_execute(&rows).await.unwrap();
    assert_eq!(inbox.purge(4).await.unwrap(), 4);
    assert_eq!(
        fixture.count("processed_events WHERE event_id::int > 16").await,
        0,
        "the oldest go first"
    );
    assert_eq!(
        inbox.maintain().await.unwrap(),
        MaintenanceReport { purged: 6 + 1, ..MaintenanceReport::default() }
    );
    assert_eq!(fixture.count("processed_events").await, 9);
}

async fn old_partitions_are_dropped_and_new_ones_made<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let long = fixture
        .builder()
        .variant(InboxVariant::Partitioned)
        .retention(20 * DAY)
        .build()
        .await
        .unwrap();
    let client = fixture.client().await;
    let (old, new) = (event_of_day(&client, 15).await, event_of_day(&client, 2).await);
    for event in [&old, &new] {
        let done =
            long.process(event, async |tx, _| Ok(fixture.insert_effect(tx, event).await?)).await;
        assert_eq!(done.unwrap(), Done::Now(()));
    }
    let short = fixture
        .builder()
        .variant(InboxVariant::Partitioned)
        .retention(10 * DAY)
        .build()
        .await
        .unwrap();
    let maintenance = short.maintain().await.unwrap();
    assert_eq!((maintenance.dropped, maintenance.purged), (1, 0));
    assert_eq!(
        (fixture.effects_and_records(&old).await, fixture.effects_and_records(&new).await),
        ((1, 0), (1, 1))
    );
    assert_eq!(
        short.maintain().await.unwrap(),
        MaintenanceReport::default(),
        "nothing is left to do"
    );
    let done = short.process(&new, async |tx, _| Ok(fixture.insert_effect(tx, &new).await?)).await;
    assert_eq!(done.unwrap(), Done::Duplicate(None));
}

/// The partition of its day is dropped, so it cannot be known whether the event was processed.
async fn an_event_older_than_the_retention_is_refused<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let inbox = fixture
        .builder()
        .variant(InboxVariant::Partitioned)
        .retention(10 * DAY)
        .build()
        .await
        .unwrap();
    let old = event_of_day(&fixture.client().await, 15).await;
    let refused = inbox.process::<(), _>(&old, async |_, _| panic!("it ran")).await;
    let Err(InboxError::Store(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("dead-letter"), "{error}");
}

async fn a_missing_partition_is_made<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.inbox(InboxVariant::Partitioned).await;
    let client = fixture.client().await;
    let ahead = [event_of_day(&client, -30).await, event_of_day(&client, -31).await];
    for event in &ahead {
        let done =
            inbox.process(event, async |tx, _| Ok(fixture.insert_effect(tx, event).await?)).await;
        assert_eq!(done.unwrap(), Done::Now(()));
    }
    let more = [event_of_day(&client, -40).await, event_of_day(&client, -41).await];
    let done = inbox.process_batch(&more, async |_, _| Ok(())).await.unwrap();
    assert!(done.iter().all(|done| matches!(done, Ok(Done::Now(())))), "{done:?}");
}

/// The records of that day are lost: a longer retention does not bring them back.
async fn a_dropped_partition_is_not_created_again<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let partitioned =
        |days| fixture.builder().variant(InboxVariant::Partitioned).retention(days * DAY).build();
    let old = event_of_day(&fixture.client().await, 15).await;
    let long = partitioned(20).await.unwrap();
    long.process(&old, async |tx, _| Ok(fixture.insert_effect(tx, &old).await?)).await.unwrap();
    assert_eq!(partitioned(10).await.unwrap().maintain().await.unwrap().dropped, 1);
    let refused = long.process::<(), _>(&old, async |_, _| panic!("it runs again")).await;
    let Err(InboxError::Store(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("dead-letter"), "{error}");
}

async fn a_consumer_purges_only_its_own<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let mail = fixture.builder().consumer("mail").retention(DAY).source_window(DAY);
    let mail = mail.build().await.unwrap();
    let rows = format!(
        "INSERT INTO {}.processed_events (consumer, event_id, event_type, processed_at)
         SELECT c, 'old', 't', now() - interval '3 days' FROM unnest(ARRAY['mail', 'profiles']) AS c",
        fixture.schema.name
    );
    fixture.client().await.batch_execute(&rows).await.unwrap();
    assert_eq!(mail.maintain().await.unwrap().purged, 1);
    assert_eq!(fixture.count("processed_events WHERE consumer = 'profiles'").await, 1);
}

async fn many_nodes_may_install_at_once<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    for variant in [InboxVariant::Minimal, InboxVariant::Partitioned] {
        let table = format!("many_{variant:?}").to_lowercase();
        let nodes = (0..5).map(|_| fixture.builder().table(&table).variant(variant).build());
        for node in futures_util::future::join_all(nodes).await {
            node.unwrap();
        }
    }
}

async fn statistics_have_rows_bytes_and_age<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    let inbox = fixture.inbox(InboxVariant::Full).await;
    let rows = format!(
        "INSERT INTO {0}.processed_events (consumer, event_id, event_type, processed_at)
         SELECT 'test', n::text, 't', now() - interval '1 hour' FROM generate_series(1, 100) AS n;
         ANALYZE {0}.processed_events",
        fixture.schema.name
    );
    fixture.client().await.batch_execute(&rows).await.unwrap();
    let stats = inbox.stats().await.unwrap();
    assert_eq!(stats.rows, 100);
    assert!(stats.bytes > 8192, "{stats:?}");
    assert!((3600..3700).contains(&stats.oldest.as_secs()), "{stats:?}");
}

/// Why the table is not partitioned by the time of processing.
#[tokio::test]
async fn partitions_by_processed_at_would_let_a_copy_run_again() {
    let fixture = InboxFixture::over_sqlx().await;
    let client = fixture.client().await;
    let name = &fixture.schema.name;
    let table = format!(
        "CREATE TABLE {name}.wrong (event_id uuid PRIMARY KEY, processed_at timestamptz NOT NULL)
        PARTITION BY RANGE (processed_at)"
    );
    let refused = client.batch_execute(&table).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "0A000", "the server wants the time in the key");
    let table = format!(
        "CREATE TABLE {name}.wrong (event_id uuid, processed_at timestamptz, PRIMARY KEY (event_id, processed_at))
           PARTITION BY RANGE (processed_at);
         CREATE TABLE {name}.wrong_1 PARTITION OF {name}.wrong FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
         CREATE TABLE {name}.wrong_2 PARTITION OF {name}.wrong FOR VALUES FROM ('2026-01-02') TO ('2026-01-03')"
    );
    client.batch_execute(&table).await.unwrap();
    let event = event();
    for day in ["2026-01-01 23:59", "2026-01-02 00:01"] {
        let copy = format!(
            "INSERT INTO {name}.wrong VALUES ('{}', '{day}') ON CONFLICT DO NOTHING",
            event.id()
        );
        assert_eq!(
            client.execute(copy.as_str(), &[]).await.unwrap(),
            1,
            "the copy of {day} passes"
        );
    }
}
