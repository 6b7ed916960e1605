//! Tests of the Kafka source, dead letters and publisher on real brokers, and on librdkafka's mock cluster.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod cluster;
mod common;
mod conformance;
mod connect;
mod dead_letters;
mod inbox;
mod load;
mod mock;
mod offsets;
mod publisher;
mod rebalance;
mod records;
mod replay;
mod reply;
mod watcher;
