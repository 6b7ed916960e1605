//! Real servers for tests: installed when missing, started on free loopback ports, asked by a real
//! request before they count as up, stopped by pid.
//!
//! Every run of a server has a folder below `target/servers` with its data, its log and a record of
//! its process. The record makes it stoppable from another process, and makes two checkouts, or two
//! runs in one checkout, invisible to each other.

mod chore;
mod fleet;
mod health;
mod install;
mod nats;
mod nginx;
mod postgres;
mod process;
mod record;
mod redis;
mod server;
mod site;
mod start;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::chore::{Chore, run};
pub(crate) use self::fleet::{Fleet, stop_on_interrupt};
pub(crate) use self::install::{Install, on_path, venv};
pub(crate) use self::nginx::NGINX;
pub(crate) use self::server::Server;

/// Every server xtask knows.
const CATALOGUE: &[&Server] = &[&redis::SERVER, &nats::SERVER, &postgres::SERVER];
