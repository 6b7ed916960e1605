//! Nobody forgets an event while its source may deliver it again.

use std::time::Duration;

use semel_core::{ErrorKind, Result};
use semel_inbox::{Done, InboxKeeper, InboxPool, InboxVariant, PgInbox, Upkeep};
use semel_store_postgres::PostgresStore;

use crate::{
    over_pools,
    scene::{OfOne, Scene, dated, event},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

over_pools! {
    a_retention_shorter_than_the_sources_window_is_refused
    an_operator_keeps_to_the_longest_window_of_all_consumers
    a_window_that_nobody_declared_is_a_week
    a_consumer_drops_no_partition_within_the_window_of_another
    a_node_with_an_older_window_keeps_to_the_newer
    upkeep_notes_the_window_of_who_installed_nothing
    a_wrong_window_is_corrected_as_the_refusal_says
    of_two_windows_that_are_noted_at_once_the_longer_stays
    a_window_stands_beside_whatever_else_a_comment_says
    a_role_that_may_not_note_a_window_installs_all_the_same
}

impl<P: InboxPool + Clone> Scene<P> {
    /// What an operator does.
    async fn purged(&self, days: u32) -> Result<Upkeep> {
        let table = format!("{}.processed_events", self.schema.name);
        let connecting = PostgresStore::builder(&self.schema.url).maintenance_connection();
        let keeper = InboxKeeper::open(connecting, &table, days * DAY).await;
        keeper.unwrap().upkeep().await
    }

    async fn is_refused(&self, days: u32, why: &str) -> String {
        let refused = self.purged(days).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        let refused = refused.to_string();
        for word in ["deliver again", "COMMENT ON TABLE", why] {
            assert!(refused.contains(word), "{refused}");
        }
        refused
    }

    async fn comment(&self) -> Option<String> {
        let said = "SELECT obj_description($1::text::regclass, 'pg_class')";
        let table = format!("{}.processed_events", self.schema.name);
        self.client().await.query_one(said, &[&table]).await.unwrap().get(0)
    }

    async fn says(&self, comment: &str) {
        let say = format!("COMMENT ON TABLE {}.processed_events IS '{comment}'", self.schema.name);
        self.client().await.batch_execute(&say).await.unwrap();
    }
}

async fn a_retention_shorter_than_the_sources_window_is_refused<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let declared = scene.builder().retention(20 * DAY).source_window(21 * DAY);
    for builder in [declared, scene.builder().retention(6 * DAY)] {
        let Err(refused) = builder.build().await else { panic!("it was built") };
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("deliver again"), "{refused}");
    }
    scene.builder().retention(7 * DAY).build().await.unwrap();
}

async fn an_operator_keeps_to_the_longest_window_of_all_consumers<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    for (consumer, days) in [("mail", 14), ("profiles", 2)] {
        let builder = scene.builder().consumer(consumer).source_window(days * DAY);
        builder.build().await.unwrap();
    }
    let old = format!(
        "INSERT INTO {}.processed_events (consumer, event_id, event_type, processed_at)
         SELECT 'mail', n::text, 't', now() - n * interval '1 day' FROM generate_series(1, 30) AS n",
        scene.schema.name
    );
    scene.client().await.batch_execute(&old).await.unwrap();
    scene.is_refused(13, "14 d").await;
    assert_eq!(scene.count("processed_events").await, 30);
    assert_eq!(scene.purged(14).await.unwrap().purged, 17);
}

async fn a_window_that_nobody_declared_is_a_week<P: InboxPool + Clone>(scene: Scene<P>) {
    scene.inbox(InboxVariant::Minimal).await;
    scene.says("made by our own migrations").await;
    scene.is_refused(6, "no consumer").await;
    scene.purged(7).await.unwrap();
    scene.says("semel: source window 3600 s").await;
    scene.purged(1).await.unwrap();
    scene.says("semel: source window 30 seconds").await;
    scene.is_refused(6, "no consumer").await;
    scene.says("semel: source window 99999999999999999999 s").await;
    scene.is_refused(36_000, "deliver again").await;
}

async fn a_consumer_drops_no_partition_within_the_window_of_another<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let parted = |consumer: &str, kept: u32, window: u32| {
        let builder = scene.builder().consumer(consumer).variant(InboxVariant::Partitioned);
        builder.retention(kept * DAY).source_window(window * DAY)
    };
    let (mail, client) = (parted("mail", 20, 14).build().await.unwrap(), scene.client().await);
    let old = dated(&client, 13).await;
    mail.process(&old, async |_, _| Ok(())).await.unwrap();
    let hasty = parted("profiles", 3, 3).build().await.unwrap();
    let refused = hasty.upkeep().await.unwrap_err();
    assert!(refused.to_string().contains("14 d"), "{refused}");
    assert_eq!(scene.count("processed_events").await, 1);
    assert_eq!(mail.upkeep().await.unwrap(), Upkeep::default());
}

/// Of the variant [`InboxVariant::Minimal`], an upkeep deletes whatever is old.
async fn a_node_with_an_older_window_keeps_to_the_newer<P: InboxPool + Clone>(scene: Scene<P>) {
    let node = |days: u32| {
        let builder = scene.builder().variant(InboxVariant::Minimal).retention(days * DAY);
        builder.source_window(days * DAY).build()
    };
    let old = node(7).await.unwrap();
    old.upkeep().await.unwrap();
    node(14).await.unwrap();
    let refused = old.upkeep().await.unwrap_err();
    assert!(refused.to_string().contains("14 d"), "{refused}");
}

async fn upkeep_notes_the_window_of_who_installed_nothing<P: InboxPool + Clone>(scene: Scene<P>) {
    scene.inbox(InboxVariant::Full).await;
    scene.says("ours").await;
    let service = scene.builder().install(false).source_window(20 * DAY).build().await.unwrap();
    assert_eq!(scene.comment().await.unwrap(), "ours");
    service.upkeep().await.unwrap();
    assert_eq!(scene.comment().await.unwrap(), "ours semel: source window 1728000 s");
}

/// What the refusal says to do changes nothing else that the comment says.
async fn a_wrong_window_is_corrected_as_the_refusal_says<P: InboxPool + Clone>(scene: Scene<P>) {
    scene.inbox(InboxVariant::Full).await;
    scene.says("Bob''s semel: source window 172800 s semel: dropped before 2026-01-01").await;
    let refused = scene.is_refused(1, "2 d").await;
    let at = refused.find("COMMENT ON TABLE").unwrap();
    scene.client().await.batch_execute(&refused[at..]).await.unwrap();
    let noted = "Bob's semel: dropped before 2026-01-01 semel: source window 86400 s";
    assert_eq!(scene.comment().await.unwrap(), noted);
    scene.purged(1).await.unwrap();
}

/// With a default isolation that sees only what was there at the beginning.
async fn of_two_windows_that_are_noted_at_once_the_longer_stays<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + OfOne,
{
    scene.inbox(InboxVariant::Full).await;
    scene.says("").await;
    let name = &scene.schema.name;
    let url = scene.schema.url_with("default_transaction_isolation=serializable");
    let node = |days: u32| {
        let builder = PgInbox::builder(P::of_one(&url)).schema(name).source_window(days * DAY);
        builder.install(true).build()
    };
    for round in 0..10 {
        let (short, long) = tokio::join!(node(2 + round), node(12 + round));
        assert!(short.is_ok() && long.is_ok());
        let secs = (12 + round) * 24 * 3600;
        assert_eq!(scene.comment().await.unwrap(), format!("semel: source window {secs} s"));
    }
}

async fn a_window_stands_beside_whatever_else_a_comment_says<P: InboxPool + Clone>(
    scene: Scene<P>,
) {
    let parted = |window: u32| {
        let builder = scene.builder().variant(InboxVariant::Partitioned).install(window > 0);
        builder.source_window(window * DAY).retention(10 * DAY)
    };
    parted(2).build().await.unwrap();
    scene.says("ours since 2020").await;
    parted(2).build().await.unwrap();
    assert_eq!(scene.comment().await.unwrap(), "ours since 2020 semel: source window 172800 s");
    parted(3).build().await.unwrap();
    parted(1).build().await.unwrap();
    let long = parted(0).retention(40 * DAY).build().await.unwrap();
    long.process(&dated(&scene.client().await, 30).await, async |_, _| Ok(())).await.unwrap();
    assert_eq!(parted(0).build().await.unwrap().upkeep().await.unwrap().dropped, 1);
    let said = scene.comment().await.unwrap();
    let noted = "ours since 2020 semel: source window 259200 s semel: dropped before ";
    assert!(said.starts_with(noted), "{said}");
}

/// A service that may only read and write, over a table that migrations made.
async fn a_role_that_may_not_note_a_window_installs_all_the_same<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + OfOne,
{
    scene.inbox(InboxVariant::Full).await;
    let (name, noted) = (&scene.schema.name, scene.comment().await);
    let role = format!(
        "CREATE ROLE {name} ROLE CURRENT_USER; GRANT USAGE ON SCHEMA {name} TO {name};
         GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.processed_events TO {name}"
    );
    scene.client().await.batch_execute(&role).await.unwrap();
    let pool = P::of_one(&scene.schema.url_with(&format!("role={name}")));
    let service = PgInbox::builder(pool).schema(name).source_window(20 * DAY).install(true);
    let done = service.build().await.unwrap().process(&event(), async |_, _| Ok(())).await;
    assert_eq!(done.unwrap(), Done::Now(()));
    assert_eq!(scene.comment().await, noted);
}
