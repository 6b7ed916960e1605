//! Servers that chores start: which there are, and who stops them.

mod nginx;
mod subcommand;
mod test_servers;

use semel_servers::{NATS, PGBOUNCER, POSTGRES, REDIS, Server, VALKEY};

pub(crate) use self::nginx::NGINX;
pub(crate) use self::subcommand::{ServersCommand, run};
pub(crate) use self::test_servers::{TestServers, stop_on_interrupt};

/// Every server xtask starts.
pub(crate) const CATALOGUE: &[&Server] = &[&REDIS, &VALKEY, &NATS, &POSTGRES];

/// Servers that only tests start, each with settings of its own.
pub(crate) const FOR_TESTS: &[&Server] = &[&PGBOUNCER];
