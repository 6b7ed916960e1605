//! Shows that core has no driver and does no I/O: its normal dependencies contain neither such a crate nor
//! such a feature of tokio.

use anyhow::{Result, ensure};
use semel_servers::command;

use crate::gate::{GateRun, GateStage};

pub(crate) const STAGE: GateStage = GateStage {
    name: "core tree",
    fix: "move what needs the driver out of semel-core, into a crate of its own",
    run,
};

const CORE: &str = "semel-core";

#[rustfmt::skip]
const DRIVERS: &[&str] = &[
    // Databases.
    "deadpool-postgres", "diesel", "fjall", "fred", "heed", "mongodb", "mysql_async", "postgres", "redb", "redis",
    "rocksdb", "rusqlite", "scylla", "sea-orm", "sled", "sqlx", "sqlx-core", "tiberius", "tokio-postgres",
    // Brokers.
    "amqprs", "async-nats", "lapin", "nats", "pulsar", "rdkafka", "rdkafka-sys", "rskafka", "rumqttc",
    // Network and operating system.
    "actix-web", "async-std", "axum", "curl", "hyper", "hyper-util", "mio", "native-tls", "openssl", "quinn",
    "reqwest", "rustls", "smol", "socket2", "tokio-native-tls", "tokio-rustls", "tokio-tungstenite", "tonic",
    "tower-http", "tungstenite", "ureq", "warp",
];

const DRIVER_PREFIXES: &[&str] = &["aws-sdk-", "azure_", "google-cloud-"];

const TOKIO_FEATURES: &[&str] = &["fs", "full", "io-std", "net", "process", "signal"];

fn run(gate: &GateRun) -> Result<()> {
    let found = offences(&command::capture(&mut gate.cargo(&[
        "tree",
        "--package",
        CORE,
        "--edges",
        "normal,features",
        "--all-features",
        "--target",
        "all",
        "--prefix",
        "none",
    ]))?);
    ensure!(found.is_empty(), "{CORE} depends on {}", found.join(", "));
    Ok(())
}

/// Drivers and tokio features in a tree whose lines read `name v1.2.3` or `name feature "x"`.
fn offences(tree: &str) -> Vec<String> {
    let mut found: Vec<_> = tree.lines().filter_map(offence).collect();
    found.sort();
    found.dedup();
    found
}

fn offence(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    if is_driver(name) {
        return Some(format!("`{name}`"));
    }
    let ("tokio", Some("feature"), Some(quoted)) = (name, words.next(), words.next()) else {
        return None;
    };
    let feature = quoted.trim_matches('"');
    TOKIO_FEATURES.contains(&feature).then(|| format!("`tokio/{feature}`"))
}

fn is_driver(name: &str) -> bool {
    DRIVERS.contains(&name) || DRIVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_and_an_io_feature_are_found() {
        let tree = "semel-core v0.1.0 (here)\ntokio feature \"net\" (*)\ntokio v1.0.0\n\
                    redis v1.0.0\ngoogle-cloud-pubsub v1.0.0\nredis v1.0.0 (*)";
        assert_eq!(offences(tree), ["`google-cloud-pubsub`", "`redis`", "`tokio/net`"]);
    }

    #[test]
    fn a_runtime_without_io_is_no_offence() {
        let tree = "tokio feature \"rt\"\ntokio feature \"sync\"\ntokio-util feature \"net\"\n";
        assert!(offences(tree).is_empty());
    }
}
