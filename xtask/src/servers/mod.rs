//! The servers that xtask starts and stops.

mod nginx;
mod subcommand;
mod test_servers;

use semel_servers::{KAFKA, NATS, PGBOUNCER, POSTGRES, REDIS, TestServer, VALKEY};

pub(crate) use self::nginx::NGINX;
pub(crate) use self::subcommand::{ServersCommand, run};
pub(crate) use self::test_servers::{TestServers, stop_on_interrupt};

/// Every server that xtask can start.
pub(crate) const CATALOGUE: &[&TestServer] = &[&REDIS, &VALKEY, &NATS, &POSTGRES, &KAFKA];

/// Servers that only tests start, each with settings of its own.
pub(crate) const FOR_TESTS: &[&TestServer] = &[&PGBOUNCER];
