//! Real servers for tests: started on free loopback ports, asked by a real request before they count
//! as up, killed, paused and restarted on the same port and data, stopped by process id.
//!
//! Every run of a server has a folder below `target/servers` with its data, its log and a record of
//! its process. The record makes it stoppable from another process, and makes two checkouts, or two
//! runs in one checkout, invisible to each other. What a killed run left behind is ended by the next.
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
pub use self::install::{Install, on_path, venv};
pub use self::nats::NATS;
pub use self::nats_cluster::NatsCluster;
pub use self::pgbouncer::{PGBOUNCER, pgbouncer};
pub use self::postgres::POSTGRES;
pub use self::process::{Process, Stop};
pub use self::record::{Owner, Record};
pub use self::redis::{REDIS, VALKEY};
pub use self::running::{Running, needed, sweep};
pub use self::sentinel::RedisSentinel;
pub use self::server::Server;
pub use self::site::{Site, free_port, scratch};
pub use self::start::Group;
