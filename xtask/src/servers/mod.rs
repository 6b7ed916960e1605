//! Servers that chores start: which there are, and who stops them.

mod chore;
mod fleet;
mod nginx;

use semel_servers::{NATS, PGBOUNCER, POSTGRES, REDIS, Server, VALKEY};

pub(crate) use self::chore::{Chore, run};
pub(crate) use self::fleet::{Fleet, stop_on_interrupt};
pub(crate) use self::nginx::NGINX;

/// Every server xtask starts.
pub(crate) const CATALOGUE: &[&Server] = &[&REDIS, &VALKEY, &NATS, &POSTGRES];

/// Servers that only tests start, each with settings of its own.
pub(crate) const FOR_TESTS: &[&Server] = &[&PGBOUNCER];
