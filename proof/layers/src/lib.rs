//! A Redis and a PostgreSQL for tests of the layers over two stores: arbiter and failover.

#![expect(clippy::unwrap_used, reason = "only tests use it")]

use semel_core::{Arbiter, Failover, Result, Store};
use semel_faults::FaultProxy;
use semel_servers::{POSTGRES, REDIS, Running};
use semel_store_postgres::{PostgresStore, PostgresStoreBuilder};
use semel_store_redis::{RedisFront, RedisStore, RedisStoreBuilder};

/// The two servers of one test, which the test may kill.
#[derive(Debug)]
pub struct TwoServers {
    /// Durable: it keeps what it acknowledged.
    pub redis: Running,
    /// The authority of arbiters, the secondary of failovers.
    pub postgres: Running,
    name: String,
}

impl TwoServers {
    /// Starts both servers.
    ///
    /// # Panics
    ///
    /// When one of them does not start. The message says how it is installed.
    #[must_use]
    pub fn start() -> Self {
        let redis = Running::start(&REDIS.durable()).unwrap();
        let postgres = Running::start(&POSTGRES).unwrap();
        Self { redis, postgres, name: format!("layers_{:016x}", rand::random::<u64>()) }
    }

    /// The front in Redis, without a proxy.
    ///
    /// # Panics
    ///
    /// When its settings are wrong, or PostgreSQL does not answer.
    pub async fn front(&self) -> RedisFront {
        self.front_of(&self.postgres().await).await.unwrap()
    }

    /// The front in Redis for this authority.
    ///
    /// # Errors
    ///
    /// When its settings are wrong, or it belongs to another authority.
    pub async fn front_of(&self, authority: &dyn Store) -> Result<RedisFront> {
        self.at(self.redis.port()).connect_front(authority).await
    }

    fn at(&self, port: u16) -> RedisStoreBuilder {
        let url = format!("redis://127.0.0.1:{port}/");
        RedisStore::builder(&url).prefix(&self.name).connections(2)
    }

    /// The PostgreSQL store of one node.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub async fn postgres(&self) -> PostgresStore {
        self.table(PostgresStoreBuilder::TABLE).await
    }

    /// The PostgreSQL store with another table.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub async fn table(&self, table: &str) -> PostgresStore {
        let builder = PostgresStore::builder(self.postgres.url()).schema(&self.name).table(table);
        builder.connections(2).migrate(true).connect().await.unwrap()
    }

    /// A failover that reaches its primary through a proxy.
    ///
    /// # Panics
    ///
    /// When one of the servers does not answer.
    pub async fn failover(&self, proxy: &FaultProxy) -> Failover<RedisStore, PostgresStore> {
        let primary = self.at(proxy.port()).connect().await.unwrap();
        Failover::builder(primary, self.postgres().await)
            .allow_duplicate_execution_on_failover(true)
            .build()
            .unwrap()
    }

    /// An arbiter.
    ///
    /// # Panics
    ///
    /// When one of the servers does not answer.
    pub async fn arbiter(&self) -> Arbiter<RedisFront, PostgresStore> {
        self.arbiter_at(self.redis.port()).await
    }

    /// An arbiter that reaches its front through a proxy.
    ///
    /// # Panics
    ///
    /// When PostgreSQL does not answer.
    pub async fn arbiter_through(&self, proxy: &FaultProxy) -> Arbiter<RedisFront, PostgresStore> {
        self.arbiter_at(proxy.port()).await
    }

    async fn arbiter_at(&self, port: u16) -> Arbiter<RedisFront, PostgresStore> {
        let table = self.postgres().await;
        Arbiter::new(self.at(port).connect_front(&table).await.unwrap(), table)
    }
}
