//! Real servers for tests: they are started on free loopback ports, checked with a real request, killed, paused and
//! restarted on the same port and data, and stopped by process id.
//!
//! Every run of a server has a folder below `target/servers` with its data, its log and a record of its process. With
//! the record another process can stop it; and two checkouts, or two runs in one checkout, do not affect each other.
//! The next run stops what a killed run left.
//!
//! ```no_run
//! use semel_servers::{REDIS, Running};
//!
//! let mut redis = Running::start(&REDIS.durable())?;
//! redis.ask(&["SET", "a", "1"])?;
//! redis.kill()?;
//! redis.restart()?;
//! assert_eq!(redis.ask(&["GET", "a"])?, "1");
//! # Ok::<(), anyhow::Error>(())
//! ```

mod certificates;
mod cluster;
pub mod command;
mod health;
mod install;
mod kafka;
mod kafka_cluster;
mod kafka_protocol;
mod nats;
mod nats_cluster;
mod pgbouncer;
mod postgres;
mod process;
mod record;
mod redis;
mod resp;
mod running;
mod sentinel;
mod server;
mod site;
mod start;

#[cfg(test)]
mod tests;

pub use self::certificates::Certificates;
pub use self::cluster::RedisCluster;
pub use self::install::{Install, debian_packages, on_path, venv};
pub use self::kafka::KAFKA;
pub use self::kafka_cluster::KafkaCluster;
pub use self::nats::NATS;
pub use self::nats_cluster::NatsCluster;
pub use self::pgbouncer::{PGBOUNCER, pgbouncer};
pub use self::postgres::POSTGRES;
pub use self::process::{ServerProcess, StopSignal};
pub use self::record::{ServerOwner, ServerRecord};
pub use self::redis::{REDIS, VALKEY};
pub use self::running::{Running, needed, sweep};
pub use self::sentinel::RedisSentinel;
pub use self::server::TestServer;
pub use self::site::{ServerSite, free_port, scratch};
pub use self::start::SignalGroup;
