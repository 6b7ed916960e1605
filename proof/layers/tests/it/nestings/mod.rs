//! Every nesting of layers that a URL and its options can open, over real servers, keeps every promise, follows the
//! protocol and passes the HTTP suite. Single layers are tested with their store or in `conformance.rs`.

mod http_suite;
mod setup;

use std::{panic::resume_unwind, thread, time::Duration};

use semel_conformance::{Subject, Time, state_machine};
use semel_core::Store;

use self::{
    http_suite::passes_the_http_suite,
    setup::{NestedSetup, NestedStore},
};
use crate::{
    layered::Layered,
    nats_store::{LATE, keeps_every_promise},
};

/// Makes the tests of each nesting: promises, protocol, HTTP suite.
macro_rules! nestings {
    ($($name:ident: $setup:expr,)*) => {
        $(mod $name {
            use super::*;

            struct OnTest(NestedStore);

            impl Subject for OnTest {
                async fn open() -> Self {
                    Self($setup.open().await)
                }
                fn store(&self) -> &dyn Store {
                    &self.0.store
                }
                fn time(&self) -> &dyn Time {
                    &self.0.time
                }
                fn tolerance(&self) -> Duration {
                    LATE
                }
            }

            pub(super) fn follows_the_protocol() {
                state_machine::<OnTest>(2, 30);
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn every_promise_is_kept() {
                let nested = $setup.open().await;
                keeps_every_promise(nested.store.clone()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn the_http_suite_passes() {
                let nested = $setup.open().await;
                passes_the_http_suite(Layered::over(nested.store.clone(), nested).await).await;
            }
        })*

        /// All nestings at once, since they mostly wait.
        #[test]
        fn every_answer_follows_the_protocol() {
            thread::scope(|scope| {
                let machines =
                    [$((stringify!($name), scope.spawn($name::follows_the_protocol)),)*];
                for (name, machine) in machines {
                    machine.join().unwrap_or_else(|cause| {
                        eprintln!("{name} does not follow the protocol");
                        resume_unwind(cause)
                    });
                }
            });
        }
    };
}

nestings! {
    sealed_in_redis: NestedSetup::redis().sealed(),
    sealed_in_nats: NestedSetup::nats().sealed(),
    sealed_in_a_nats_cluster: NestedSetup::nats_cluster().sealed(),
    sealed_over_an_arbiter: NestedSetup::arbiter().sealed(),
    sealed_over_a_failover: NestedSetup::failover().sealed(),
    cached_from_a_nats_cluster: NestedSetup::nats_cluster().cached(),
    cached_from_a_failover: NestedSetup::failover().cached(),
    cached_and_sealed_in_postgres: NestedSetup::postgres().sealed().cached(),
    cached_and_sealed_in_redis: NestedSetup::redis().sealed().cached(),
    cached_and_sealed_in_nats: NestedSetup::nats().sealed().cached(),
    cached_and_sealed_in_a_nats_cluster: NestedSetup::nats_cluster().sealed().cached(),
    cached_and_sealed_over_an_arbiter: NestedSetup::arbiter().sealed().cached(),
    cached_and_sealed_over_a_failover: NestedSetup::failover().sealed().cached(),
}

/// Makes a test of the HTTP suite for stores whose promises and protocol are tested elsewhere.
macro_rules! http_suites {
    ($($name:ident: $setup:expr,)*) => {
        mod the_http_suite_passes {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let opened = $setup.open().await;
                passes_the_http_suite(Layered::over(opened.store.clone(), opened).await).await;
            })*
        }
    };
}

http_suites! {
    in_a_nats_cluster: NestedSetup::nats_cluster(),
    sealed_in_postgres: NestedSetup::postgres().sealed(),
    over_an_arbiter: NestedSetup::arbiter(),
    over_an_arbiter_under_a_cache: NestedSetup::arbiter().cached(),
    over_a_failover: NestedSetup::failover(),
}
