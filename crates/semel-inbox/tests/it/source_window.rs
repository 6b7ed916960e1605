//! No process removes an event while its source may deliver it again.

use std::time::Duration;

use semel_core::{ErrorKind, Result};
use semel_inbox::{Done, InboxMaintenance, InboxPool, InboxVariant, MaintenanceReport, PgInbox};
use semel_store_postgres::PostgresStore;

use crate::{
    fixture::{InboxFixture, SingleConnectionPool, event, event_of_day},
    over_pools,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

over_pools! {
    a_retention_shorter_than_the_source_window_is_refused
    an_operator_purges_nothing_within_the_longest_window_of_all_consumers
    the_default_source_window_is_a_week
    a_consumer_drops_no_partition_within_the_window_of_another
    a_node_with_a_shorter_window_respects_a_longer_one
    maintenance_writes_the_window_of_a_service_that_did_not_install
    the_statement_in_the_refusal_corrects_a_wrong_window
    of_two_windows_written_at_once_the_longer_stays
    a_window_keeps_other_text_in_the_table_comment
    a_role_that_does_not_own_the_table_installs_without_the_window
}

impl<P: InboxPool + Clone> InboxFixture<P> {
    /// The maintenance of an operator.
    async fn maintenance_by_operator(&self, days: u32) -> Result<MaintenanceReport> {
        let table = format!("{}.processed_events", self.schema.name);
        let connecting = PostgresStore::builder(&self.schema.url).maintenance_connection();
        let maintenance = InboxMaintenance::open(connecting, &table, days * DAY).await;
        maintenance.unwrap().run().await
    }

    async fn assert_refused(&self, days: u32, why: &str) -> String {
        let refused = self.maintenance_by_operator(days).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        let refused = refused.to_string();
        for word in ["deliver again", "COMMENT ON TABLE", why] {
            assert!(refused.contains(word), "{refused}");
        }
        refused
    }

    async fn comment(&self) -> Option<String> {
        let query = "SELECT obj_description($1::text::regclass, 'pg_class')";
        let table = format!("{}.processed_events", self.schema.name);
        self.client().await.query_one(query, &[&table]).await.unwrap().get(0)
    }

    async fn set_comment(&self, comment: &str) {
        let say = format!("COMMENT ON TABLE {}.processed_events IS '{comment}'", self.schema.name);
        self.client().await.batch_execute(&say).await.unwrap();
    }
}

async fn a_retention_shorter_than_the_source_window_is_refused<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let declared = fixture.builder().retention(20 * DAY).source_window(21 * DAY);
    for builder in [declared, fixture.builder().retention(6 * DAY)] {
        let Err(refused) = builder.build().await else { panic!("it was built") };
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("deliver again"), "{refused}");
    }
    fixture.builder().retention(7 * DAY).build().await.unwrap();
}

async fn an_operator_purges_nothing_within_the_longest_window_of_all_consumers<
    P: InboxPool + Clone,
>(
    fixture: InboxFixture<P>,
) {
    for (consumer, days) in [("mail", 14), ("profiles", 2)] {
        let builder = fixture.builder().consumer(consumer).source_window(days * DAY);
        builder.build().await.unwrap();
    }
    let old = format!(
        "INSERT INTO {}.processed_events (consumer, event_id, event_type, processed_at)
         SELECT 'mail', n::text, 't', now() - n * interval '1 day' FROM generate_series(1, 30) AS n",
        fixture.schema.name
    );
    fixture.client().await.batch_execute(&old).await.unwrap();
    fixture.assert_refused(13, "14 d").await;
    assert_eq!(fixture.count("processed_events").await, 30);
    assert_eq!(fixture.maintenance_by_operator(14).await.unwrap().purged, 17);
}

async fn the_default_source_window_is_a_week<P: InboxPool + Clone>(fixture: InboxFixture<P>) {
    fixture.inbox(InboxVariant::Minimal).await;
    fixture.set_comment("made by our own migrations").await;
    fixture.assert_refused(6, "no consumer").await;
    fixture.maintenance_by_operator(7).await.unwrap();
    fixture.set_comment("semel: source window 3600 s").await;
    fixture.maintenance_by_operator(1).await.unwrap();
    fixture.set_comment("semel: source window 30 seconds").await;
    fixture.assert_refused(6, "no consumer").await;
    fixture.set_comment("semel: source window 99999999999999999999 s").await;
    fixture.assert_refused(36_000, "deliver again").await;
}

async fn a_consumer_drops_no_partition_within_the_window_of_another<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let partitioned = |consumer: &str, kept: u32, window: u32| {
        let builder = fixture.builder().consumer(consumer).variant(InboxVariant::Partitioned);
        builder.retention(kept * DAY).source_window(window * DAY)
    };
    let (mail, client) =
        (partitioned("mail", 20, 14).build().await.unwrap(), fixture.client().await);
    let old = event_of_day(&client, 13).await;
    mail.process(&old, async |_, _| Ok(())).await.unwrap();
    let hasty = partitioned("profiles", 3, 3).build().await.unwrap();
    let refused = hasty.maintain().await.unwrap_err();
    assert!(refused.to_string().contains("14 d"), "{refused}");
    assert_eq!(fixture.count("processed_events").await, 1);
    assert_eq!(mail.maintain().await.unwrap(), MaintenanceReport::default());
}

/// In a table of the variant [`InboxVariant::Minimal`], maintenance deletes old events of all consumers.
async fn a_node_with_a_shorter_window_respects_a_longer_one<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let node = |days: u32| {
        let builder = fixture.builder().variant(InboxVariant::Minimal).retention(days * DAY);
        builder.source_window(days * DAY).build()
    };
    let old = node(7).await.unwrap();
    old.maintain().await.unwrap();
    node(14).await.unwrap();
    let refused = old.maintain().await.unwrap_err();
    assert!(refused.to_string().contains("14 d"), "{refused}");
}

async fn maintenance_writes_the_window_of_a_service_that_did_not_install<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    fixture.inbox(InboxVariant::Full).await;
    fixture.set_comment("ours").await;
    let service = fixture.builder().install(false).source_window(20 * DAY).build().await.unwrap();
    assert_eq!(fixture.comment().await.unwrap(), "ours");
    service.maintain().await.unwrap();
    assert_eq!(fixture.comment().await.unwrap(), "ours semel: source window 1728000 s");
}

/// The statement changes nothing else in the comment.
async fn the_statement_in_the_refusal_corrects_a_wrong_window<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    fixture.inbox(InboxVariant::Full).await;
    fixture
        .set_comment("Bob''s semel: source window 172800 s semel: dropped before 2026-01-01")
        .await;
    let refused = fixture.assert_refused(1, "2 d").await;
    let at = refused.find("COMMENT ON TABLE").unwrap();
    fixture.client().await.batch_execute(&refused[at..]).await.unwrap();
    let expected = "Bob's semel: dropped before 2026-01-01 semel: source window 86400 s";
    assert_eq!(fixture.comment().await.unwrap(), expected);
    fixture.maintenance_by_operator(1).await.unwrap();
}

/// With a default isolation level in which a transaction sees only what was committed when it began.
async fn of_two_windows_written_at_once_the_longer_stays<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + SingleConnectionPool,
{
    fixture.inbox(InboxVariant::Full).await;
    fixture.set_comment("").await;
    let name = &fixture.schema.name;
    let url = fixture.schema.url_with("default_transaction_isolation=serializable");
    let node = |days: u32| {
        let builder = PgInbox::builder(P::single(&url)).schema(name).source_window(days * DAY);
        builder.install(true).build()
    };
    for round in 0..10 {
        let (short, long) = tokio::join!(node(2 + round), node(12 + round));
        assert!(short.is_ok() && long.is_ok());
        let secs = (12 + round) * 24 * 3600;
        assert_eq!(fixture.comment().await.unwrap(), format!("semel: source window {secs} s"));
    }
}

async fn a_window_keeps_other_text_in_the_table_comment<P: InboxPool + Clone>(
    fixture: InboxFixture<P>,
) {
    let partitioned = |window: u32| {
        let builder = fixture.builder().variant(InboxVariant::Partitioned).install(window > 0);
        builder.source_window(window * DAY).retention(10 * DAY)
    };
    partitioned(2).build().await.unwrap();
    fixture.set_comment("ours since 2020").await;
    partitioned(2).build().await.unwrap();
    assert_eq!(fixture.comment().await.unwrap(), "ours since 2020 semel: source window 172800 s");
    partitioned(3).build().await.unwrap();
    partitioned(1).build().await.unwrap();
    let long = partitioned(0).retention(40 * DAY).build().await.unwrap();
    long.process(&event_of_day(&fixture.client().await, 30).await, async |_, _| Ok(()))
        .await
        .unwrap();
    assert_eq!(partitioned(0).build().await.unwrap().maintain().await.unwrap().dropped, 1);
    let said = fixture.comment().await.unwrap();
    let noted = "ours since 2020 semel: source window 259200 s semel: dropped before ";
    assert!(said.starts_with(noted), "{said}");
}

/// A service that may only read and write, over a table that a migration created.
async fn a_role_that_does_not_own_the_table_installs_without_the_window<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + SingleConnectionPool,
{
    fixture.inbox(InboxVariant::Full).await;
    let (name, noted) = (&fixture.schema.name, fixture.comment().await);
    let role = format!(
        "CREATE ROLE {name} ROLE CURRENT_USER; GRANT USAGE ON SCHEMA {name} TO {name};
         GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.processed_events TO {name}"
    );
    fixture.client().await.batch_execute(&role).await.unwrap();
    let pool = P::single(&fixture.schema.url_with(&format!("role={name}")));
    let service = PgInbox::builder(pool).schema(name).source_window(20 * DAY).install(true);
    let done = service.build().await.unwrap().process(&event(), async |_, _| Ok(())).await;
    assert_eq!(done.unwrap(), Done::Now(()));
    assert_eq!(fixture.comment().await, noted);
}
