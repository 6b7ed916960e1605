//! Gateways and operators on stores that many processes share.

mod faults;
mod inbox;
mod keys;
mod load;
mod refusals;
mod seals;
mod shared_store;
mod two_gateways;

pub(crate) use self::shared_store::SharedStore;

/// Runs each test on PostgreSQL, on Redis and on NATS.
macro_rules! on_each {
    ($($test:ident)*) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::shared::SharedStore::postgres()).await;
            })*
        }
        mod on_redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::shared::SharedStore::redis()).await;
            })*
        }
        mod on_nats {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::shared::SharedStore::nats()).await;
            })*
        }
    };
}
use on_each;

/// Runs each test also on PostgreSQL and Redis as one store.
macro_rules! on_all {
    ($($test:ident)*) => {
        crate::shared::on_each! { $($test)* }
        mod on_an_arbiter {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::shared::SharedStore::arbiter()).await;
            })*
        }
        mod on_a_failover {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::shared::SharedStore::failover()).await;
            })*
        }
    };
}
use on_all;
