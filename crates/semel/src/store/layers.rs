//! Two servers as one store: a Redis as the front of a PostgreSQL, or a PostgreSQL as the failover of a Redis.

use std::sync::Arc;

use semel_core::{Error, Finding, Result, Store};

use super::{StoreOptions, StoreUrl, url::StoreLocation};

/// The second server of a store.
enum Layers<'a> {
    None,
    /// Replays copies of the outcomes that the store recorded.
    Front(&'a StoreUrl),
    /// Serves while the store is unreachable.
    Failover(&'a StoreUrl),
}

impl StoreUrl {
    /// Checks that these options fit this store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if they do not. The message says which options do.
    pub fn check(&self, options: &StoreOptions) -> Result<()> {
        self.layers(options).map(drop)
    }

    /// Checks the parameters and settings of this store alone, without connecting.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a parameter or a setting that the store does not accept.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis", feature = "nats")),
        expect(unused_variables, reason = "only servers have settings")
    )]
    pub fn validate(&self, options: &StoreOptions) -> Result<()> {
        match &self.0 {
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(server) => super::postgres::builder(server, options).validate(),
            #[cfg(feature = "redis")]
            StoreLocation::Redis(server) => super::redis::builder(server, options).validate(),
            #[cfg(feature = "nats")]
            StoreLocation::Nats(server) => super::nats::builder(server, options).validate(),
            _ => Ok(()),
        }
    }

    /// The URL of the store that has tables: this one, or the failover of `options`.
    #[must_use]
    pub fn with_tables<'a>(&'a self, options: &'a StoreOptions) -> Option<&'a Self> {
        [Some(self), options.failover.as_ref()].into_iter().flatten().find(|url| url.has_tables())
    }

    fn layers<'a>(&self, options: &'a StoreOptions) -> Result<Layers<'a>> {
        let is_redis = |url: &Self| matches!(url.0, StoreLocation::Redis(_));
        let allowed = options.allow_duplicate_execution_on_failover;
        match (&options.front, &options.failover) {
            (Some(_), Some(_)) => Err(Error::invalid(
                "front and failover exclude each other: with a front PostgreSQL decides, with a failover Redis \
                 does; leave one of them out",
            )),
            (Some(front), None) if self.has_tables() && is_redis(front) => Ok(Layers::Front(front)),
            (Some(_), None) => Err(Error::invalid(
                "a front is a Redis before a PostgreSQL; write --store postgres://… --front redis://…",
            )),
            (None, Some(second)) if !(is_redis(self) && second.has_tables()) => {
                Err(Error::invalid(
                    "a failover is from a Redis to a PostgreSQL; write --store redis://… --failover postgres://…",
                ))
            }
            (None, Some(_)) if !allowed => Err(Error::invalid(
                "a failover may run work twice, since the records of an unreachable Redis are not known; if that is \
                 acceptable, add --allow-duplicate-execution-on-failover, else swap the two: --store postgres://… \
                 --front redis://…",
            )),
            (None, Some(second)) => Ok(Layers::Failover(second)),
            (None, None) if allowed => Err(Error::invalid(
                "allow_duplicate_execution_on_failover means nothing without a failover; leave it out",
            )),
            (None, None) => Ok(Layers::None),
        }
    }

    pub(super) async fn open_layered(&self, options: &StoreOptions) -> Result<Arc<dyn Store>> {
        match self.layers(options)? {
            Layers::None => self.open_bare(options).await,
            Layers::Front(front) => arbiter(self, front, options).await,
            Layers::Failover(second) => failover(self, second, options).await,
        }
    }

    /// The findings about the second server.
    pub(super) async fn examine_layers(
        &self,
        options: &StoreOptions,
        store: Option<&dyn Store>,
    ) -> Vec<Finding> {
        match self.layers(options) {
            Ok(Layers::None) => Vec::new(),
            Ok(Layers::Front(front)) => {
                let summary =
                    "arbiter: PostgreSQL decides, Redis replays; nothing runs twice if Redis fails";
                let mut findings = vec![Finding::good(summary)];
                findings.extend(front.examine_front(options, store).await);
                findings
            }
            Ok(Layers::Failover(second)) => {
                let mut findings = vec![Finding::warning(
                    "failover: work may run twice while Redis is unreachable, and is counted then",
                    "if that is not acceptable, swap the two: --store postgres://… --front redis://…",
                )];
                findings.extend(second.examine_second("failover", options).await);
                findings.extend(second.examine_failback_window(options).await);
                findings
            }
            Err(error) => {
                vec![Finding::bad(error.to_string(), "correct the settings of the store")]
            }
        }
    }
}

#[cfg(all(feature = "postgres", feature = "redis"))]
async fn arbiter(
    authority: &StoreUrl,
    front: &StoreUrl,
    options: &StoreOptions,
) -> Result<Arc<dyn Store>> {
    let (StoreLocation::Postgres(tables), StoreLocation::Redis(copies)) = (&authority.0, &front.0)
    else {
        return Err(not_built_in());
    };
    let authority = super::postgres::open(tables, options).await?;
    let front = super::redis::builder(copies, options).connect_front(&authority).await?;
    Ok(Arc::new(semel_core::Arbiter::new(front, authority)))
}

#[cfg(all(feature = "postgres", feature = "redis"))]
async fn failover(
    primary: &StoreUrl,
    secondary: &StoreUrl,
    options: &StoreOptions,
) -> Result<Arc<dyn Store>> {
    let (StoreLocation::Redis(primary), StoreLocation::Postgres(secondary)) =
        (&primary.0, &secondary.0)
    else {
        return Err(not_built_in());
    };
    let secondary = super::postgres::open(secondary, options).await?;
    // A node must start while Redis is unreachable: this is what a failover is for.
    let primary = super::redis::builder(primary, options).connect_later(true).connect().await?;
    let builder = semel_core::Failover::builder(primary, secondary);
    let allowed = options.allow_duplicate_execution_on_failover;
    Ok(Arc::new(builder.allow_duplicate_execution_on_failover(allowed).build()?))
}

#[cfg(not(all(feature = "postgres", feature = "redis")))]
async fn arbiter(_: &StoreUrl, _: &StoreUrl, _: &StoreOptions) -> Result<Arc<dyn Store>> {
    Err(not_built_in())
}

#[cfg(not(all(feature = "postgres", feature = "redis")))]
async fn failover(_: &StoreUrl, _: &StoreUrl, _: &StoreOptions) -> Result<Arc<dyn Store>> {
    Err(not_built_in())
}

fn not_built_in() -> Error {
    Error::invalid(
        "two servers as one store need the features `postgres` and `redis` of the crate semel",
    )
}

#[cfg(test)]
#[cfg(all(feature = "postgres", feature = "redis"))]
mod tests {
    use super::*;

    const POSTGRES: &str = "postgres://app:hunter2@db/app";
    const REDIS: &str = "redis://:hunter2@cache:6379";

    fn refusal(store: &str, options: &StoreOptions) -> String {
        let text = store.parse::<StoreUrl>().unwrap().check(options).unwrap_err().to_string();
        assert!(!text.contains("hunter2"), "{text}");
        text
    }

    fn url(text: &str) -> Option<StoreUrl> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_front_needs_postgres_and_a_failover_needs_redis() {
        let front = StoreOptions { front: url(REDIS), ..StoreOptions::default() };
        POSTGRES.parse::<StoreUrl>().unwrap().check(&front).unwrap();
        for store in ["memory:", "file:a", REDIS] {
            if let Ok(store) = store.parse::<StoreUrl>() {
                assert!(refusal_of(&store, &front).contains("--front redis://"), "{store}");
            }
        }
        let second = StoreOptions {
            failover: url(POSTGRES),
            allow_duplicate_execution_on_failover: true,
            ..StoreOptions::default()
        };
        REDIS.parse::<StoreUrl>().unwrap().check(&second).unwrap();
        assert!(refusal(POSTGRES, &second).contains("--failover postgres://"));
        let redis = StoreOptions { front: url(POSTGRES), ..StoreOptions::default() };
        assert!(refusal(POSTGRES, &redis).contains("--front redis://"));
    }

    fn refusal_of(store: &StoreUrl, options: &StoreOptions) -> String {
        store.check(options).unwrap_err().to_string()
    }

    #[test]
    fn duplicate_execution_has_to_be_allowed_for_a_failover_and_only_then() {
        let silent = StoreOptions { failover: url(POSTGRES), ..StoreOptions::default() };
        let text = refusal(REDIS, &silent);
        assert!(text.contains("--allow-duplicate-execution-on-failover"), "{text}");
        let idle =
            StoreOptions { allow_duplicate_execution_on_failover: true, ..StoreOptions::default() };
        assert!(refusal(REDIS, &idle).contains("means nothing"));
        let both = StoreOptions { front: url(REDIS), ..silent };
        assert!(refusal(POSTGRES, &both).contains("exclude"));
    }
}
