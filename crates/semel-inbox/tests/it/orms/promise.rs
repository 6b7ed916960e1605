//! The promises of the inbox in a transaction of the caller.

use std::time::Duration;

use semel::inbox::{Claimed, Done, InboxVariant};

use super::{
    database::{ShopDatabase, event},
    shop::{DieselShop, SeaOrmShop, Shop},
};

async fn a_duplicate_is_answered_with_the_first_outcome<S: Shop>() {
    let database = ShopDatabase::new().await;
    let mut shop = S::open(&database, InboxVariant::Full).await;
    let first = shop.ship(&event(), "42").await.unwrap();
    assert_eq!(first, Done::Now("42".to_owned()));
    let second = shop.ship(&event(), "another").await.unwrap();
    assert_eq!(second, Done::Duplicate(Some("42".to_owned())));
    assert_eq!(database.shipments_and_records().await, (1, 1));
}

async fn a_rollback_leaves_no_record<S: Shop>() {
    let database = ShopDatabase::new().await;
    let mut shop = S::open(&database, InboxVariant::Full).await;
    shop.ship(&event(), "").await.unwrap_err();
    assert_eq!(database.shipments_and_records().await, (0, 0));
    // A dropped transaction may still be open on the server for a moment.
    let again = async {
        loop {
            match shop.ship(&event(), "42").await.unwrap() {
                Done::Busy => tokio::task::yield_now().await,
                done => break done,
            }
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(20), again).await;
    assert_eq!(again.expect("the event stays busy"), Done::Now("42".to_owned()));
    assert_eq!(database.shipments_and_records().await, (1, 1));
}

async fn a_copy_of_a_running_event_is_busy<S: Shop>() {
    let database = ShopDatabase::new().await;
    let mut shop = S::open(&database, InboxVariant::Full).await;
    let mut client = database.client().await;
    let mut copy = client.transaction().await.unwrap();
    assert!(matches!(shop.claim_in(&mut copy, &event()).await, Claimed::New(_)));
    assert_eq!(shop.ship(&event(), "42").await.unwrap(), Done::Busy);
    copy.rollback().await.unwrap();
    assert_eq!(shop.ship(&event(), "42").await.unwrap(), Done::Now("42".to_owned()));
    assert_eq!(database.shipments_and_records().await, (1, 1));
}

/// A copy in a batch holds the row lock only, not the advisory lock: the driver has to report the lock timeout.
async fn a_copy_of_an_event_in_a_running_batch_is_busy<S: Shop>() {
    let database = ShopDatabase::new().await;
    let mut shop = S::open(&database, InboxVariant::Full).await;
    let mut client = database.client().await;
    let copy = client.transaction().await.unwrap();
    let put = "INSERT INTO processed_events (consumer, event_id, event_type)
               VALUES ('default', 'order-42', 'OrderPlaced')";
    copy.batch_execute(put).await.unwrap();
    assert_eq!(shop.ship(&event(), "42").await.unwrap(), Done::Busy);
    copy.commit().await.unwrap();
    assert_eq!(shop.ship(&event(), "42").await.unwrap(), Done::Duplicate(None));
    assert_eq!(database.shipments_and_records().await, (0, 1));
}

async fn a_day_without_a_partition_gets_one<S: Shop>() {
    let database = ShopDatabase::new().await;
    let mut shop = S::open(&database, InboxVariant::Partitioned).await;
    let ago = "SELECT ((now() AT TIME ZONE 'UTC')::date - 3)::text";
    let day: String = database.client().await.query_one(ago, &[]).await.unwrap().get(0);
    let event = event().occurred_on(day).unwrap();
    assert_eq!(shop.ship(&event, "42").await.unwrap(), Done::Now("42".to_owned()));
    assert_eq!(shop.ship(&event, "42").await.unwrap(), Done::Duplicate(Some("42".to_owned())));
    assert_eq!(database.shipments_and_records().await, (1, 1));
}

/// Each test over both.
macro_rules! over_both {
    ($($test:ident)*) => {
        mod diesel_async {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<super::DieselShop>().await;
            })*
        }
        mod sea_orm {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<super::SeaOrmShop>().await;
            })*
        }
    };
}

over_both! {
    a_duplicate_is_answered_with_the_first_outcome
    a_rollback_leaves_no_record
    a_copy_of_a_running_event_is_busy
    a_copy_of_an_event_in_a_running_batch_is_busy
    a_day_without_a_partition_gets_one
}
