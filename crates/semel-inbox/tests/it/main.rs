//! The inbox keeps its promises, over every driver and in every variant of its table.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../semel-store-postgres/tests/common/mod.rs"]
mod common;

mod attempts;
mod bad_events;
mod batch;
mod drivers;
mod failed_begin;
mod fixture;
mod isolation;
mod maintenance;
mod orms;
mod process;
mod source_window;
mod tables;

/// Each test over each pool.
macro_rules! over_pools {
    ($($test:ident)*) => {
        mod sqlx {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::fixture::InboxFixture::over_sqlx().await).await;
            })*
        }
        mod deadpool {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::fixture::InboxFixture::over_deadpool().await).await;
            })*
        }
    };
}
pub(crate) use over_pools;
