//! A Redis and a PostgreSQL, and nodes that have both: in front of each other, or instead of each other.

#![expect(clippy::unwrap_used, reason = "only tests use it")]

use semel_core::{Arbiter, Failover};
use semel_faults::Proxy;
use semel_servers::{POSTGRES, REDIS, Running};
use semel_store_postgres::PostgresStore;
use semel_store_redis::RedisStore;

/// Servers of a test's own, which may die.
#[derive(Debug)]
pub struct Site {
    /// Keeps what it acknowledged.
    pub redis: Running,
    /// Decides.
    pub postgres: Running,
    name: String,
}

impl Site {
    /// Starts both.
    ///
    /// # Panics
    ///
    /// When one of them does not come up; says how it is installed.
    #[must_use]
    pub fn start() -> Self {
        let redis = Running::start(&REDIS.durable()).unwrap();
        let postgres = Running::start(&POSTGRES).unwrap();
        Self { redis, postgres, name: format!("layers_{:016x}", rand::random::<u64>()) }
    }

    /// The Redis of one node, past all proxies.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub async fn redis(&self) -> RedisStore {
        self.redis_at(self.redis.port()).await
    }

    /// The same through a proxy.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub async fn redis_through(&self, proxy: &Proxy) -> RedisStore {
        self.redis_at(proxy.port()).await
    }

    async fn redis_at(&self, port: u16) -> RedisStore {
        let url = format!("redis://127.0.0.1:{port}/");
        RedisStore::builder(&url).prefix(&self.name).connections(2).connect().await.unwrap()
    }

    /// The PostgreSQL of one node.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub async fn postgres(&self) -> PostgresStore {
        let builder = PostgresStore::builder(self.postgres.url()).schema(&self.name);
        builder.connections(2).migrate(true).connect().await.unwrap()
    }

    /// One node with a failover, through a proxy to its primary.
    ///
    /// # Panics
    ///
    /// When one of the servers does not answer.
    pub async fn failover(&self, proxy: &Proxy) -> Failover<RedisStore, PostgresStore> {
        Failover::builder(self.redis_through(proxy).await, self.postgres().await)
            .allow_duplicate_execution_on_failover(true)
            .build()
            .unwrap()
    }

    /// One node with an arbiter.
    ///
    /// # Panics
    ///
    /// When one of the servers does not answer.
    pub async fn arbiter(&self) -> Arbiter<RedisStore, PostgresStore> {
        Arbiter::new(self.redis().await, self.postgres().await)
    }
}
