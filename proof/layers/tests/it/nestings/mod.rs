//! Every nesting of layers that a URL and its options can open, over real servers, keeps every promise, follows
//! the protocol and passes the HTTP kit. A single layer is tested with its store or in `conformance.rs`.

mod kit;
mod site;

use std::{panic::resume_unwind, thread, time::Duration};

use semel_conformance::{Subject, Time, state_machine};
use semel_core::Store;

use self::{
    kit::passes_the_kit,
    site::{Nested, Site},
};
use crate::{
    layered::Layered,
    nats_store::{LATE, keeps_every_promise},
};

/// Names each nesting, and runs the three suites on it.
macro_rules! nestings {
    ($($name:ident: $site:expr,)*) => {
        $(mod $name {
            use super::*;

            struct OnTest(Nested);

            impl Subject for OnTest {
                async fn open() -> Self {
                    Self($site.open().await)
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
                let nested = $site.open().await;
                keeps_every_promise(nested.store.clone()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn the_kit_passes() {
                let nested = $site.open().await;
                passes_the_kit(Layered::over(nested.store.clone(), nested).await).await;
            }
        })*

        /// All at once: most of their time is waiting.
        #[test]
        fn every_answer_follows_the_protocol() {
            thread::scope(|scope| {
                let machines =
                    [$((stringify!($name), scope.spawn($name::follows_the_protocol)),)*];
                for (name, machine) in machines {
                    machine.join().unwrap_or_else(|cause| {
                        eprintln!("{name} departs from the protocol");
                        resume_unwind(cause)
                    });
                }
            });
        }
    };
}

nestings! {
    sealed_in_redis: Site::redis().sealed(),
    sealed_in_nats: Site::nats().sealed(),
    sealed_in_a_nats_cluster: Site::nats_cluster().sealed(),
    sealed_over_an_arbiter: Site::arbiter().sealed(),
    sealed_over_a_failover: Site::failover().sealed(),
    cached_from_a_nats_cluster: Site::nats_cluster().cached(),
    cached_from_a_failover: Site::failover().cached(),
    cached_and_sealed_in_postgres: Site::postgres().sealed().cached(),
    cached_and_sealed_in_redis: Site::redis().sealed().cached(),
    cached_and_sealed_in_nats: Site::nats().sealed().cached(),
    cached_and_sealed_in_a_nats_cluster: Site::nats_cluster().sealed().cached(),
    cached_and_sealed_over_an_arbiter: Site::arbiter().sealed().cached(),
    cached_and_sealed_over_a_failover: Site::failover().sealed().cached(),
}

/// Names what has its promises and its protocol tested elsewhere.
macro_rules! kits {
    ($($name:ident: $site:expr,)*) => {
        mod the_kit_passes {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let opened = $site.open().await;
                passes_the_kit(Layered::over(opened.store.clone(), opened).await).await;
            })*
        }
    };
}

kits! {
    in_a_nats_cluster: Site::nats_cluster(),
    sealed_in_postgres: Site::postgres().sealed(),
    over_an_arbiter: Site::arbiter(),
    over_an_arbiter_under_a_cache: Site::arbiter().cached(),
    over_a_failover: Site::failover(),
}
