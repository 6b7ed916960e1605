//! The PostgreSQL store on a real server: the conformance suites, and what the store does around the protocol
//! (refusals, locks, migrations, change feed, faults).

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../semel-http/tests/it/layered.rs"]
mod layered;

mod conformance;
mod connection_loss;
mod http_layer;
mod locks;
mod migrate;
mod pgbouncer;
mod refused_servers;
mod several_processes;
mod sizes;
mod tls;
