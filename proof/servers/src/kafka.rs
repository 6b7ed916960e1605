//! Apache Kafka from the jars on Maven Central: one process that is broker and controller, without ZooKeeper.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command;
use crate::health;
use crate::install::Install;
use crate::process::StopSignal;
use crate::server::TestServer;
use crate::site::ServerSite;

const VERSION: &str = "4.3.1";
const SETTINGS: &str = "server.properties";
const NODE: &str = "node.id";
const VOTERS: &str = "controller.quorum.voters";

/// Kafka. What it acknowledged survives a kill. A restart takes five seconds: the controller first waits until the
/// session of the killed broker ends.
pub const KAFKA: TestServer = TestServer {
    name: "kafka",
    install: Install::Maven {
        package: "kafka",
        version: VERSION,
        jars: &[
            ["org.apache.kafka", "kafka_2.13", VERSION],
            // Without a logger of its choice, Kafka logs nothing.
            ["org.slf4j", "slf4j-simple", "1.7.36"],
        ],
    },
    account: None,
    prepare,
    launch,
    health: |site| health::kafka(site.port),
    patience: Duration::from_secs(60),
    stop: StopSignal::Terminate,
    variable: "SEMEL_TEST_KAFKA",
    url: |port| format!("kafka://127.0.0.1:{port}"),
    args: Vec::new(),
    certificates: None,
};

/// Adds arguments that make a node of a cluster. A voter is `id@host:port`, with the port of a controller.
pub(crate) fn node(server: &TestServer, id: usize, voters: &str) -> TestServer {
    let (node, voters) = (format!("{NODE}={id}"), format!("{VOTERS}={voters}"));
    server.clone().args(["--override", &node, "--override", &voters])
}

/// Writes the settings and formats the data folder.
fn prepare(server: &TestServer, site: &ServerSite) -> Result<()> {
    let given = |name| overrides(server).filter(|(it, _)| *it == name).last();
    let node = given(NODE).map_or("1", |(_, node)| node);
    let alone = format!("1@127.0.0.1:{}", site.second_port);
    let voters = given(VOTERS).map_or(alone.as_str(), |(_, voters)| voters);
    let controller =
        voters.split(',').find_map(|voter| voter.strip_prefix(node)?.strip_prefix('@'));
    let controller = controller.with_context(|| format!("no controller {node} in {voters}"))?;
    fs::write(site.data.join(SETTINGS), settings(server, site.port, node, controller, voters))?;
    let mut format = java(site);
    format.args(["kafka.tools.StorageTool", "format", "--config", SETTINGS]);
    format.args(["--cluster-id", &cluster_id(voters)]);
    command::run(&mut site.logged(format)?)
        .with_context(|| format!("cannot format the data; the log ends:\n{}", site.tail()))
}

fn launch(_: &TestServer, site: &ServerSite) -> Result<Command> {
    let mut kafka = java(site);
    kafka.args(["kafka.Kafka", SETTINGS]);
    Ok(kafka)
}

/// Java with little memory and a short start: a simple collector, and only the compiler that is quick itself.
fn java(site: &ServerSite) -> Command {
    let mut java = site.command("java");
    java.args(["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    // A killed process leaves nothing outside of its data folder, which is the current one.
    java.args(["-XX:-UsePerfData", "-Djava.io.tmpdir=."]);
    java.args(["-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
    java.arg("-cp").arg(site.program.join("*"));
    java
}

/// The settings that the arguments `--override name=value` contain.
fn overrides(server: &TestServer) -> impl Iterator<Item = (&str, &str)> {
    server.args.iter().filter_map(|arg| arg.split_once('='))
}

/// The text of the settings file. The overrides are at its end, where they count: the program that formats the data
/// folder takes no `--override`.
fn settings(server: &TestServer, port: u16, node: &str, controller: &str, voters: &str) -> String {
    let nodes = voters.split(',').count();
    let majority = nodes / 2 + 1;
    let mut settings = format!(
        "\
process.roles=broker,controller
{NODE}={node}
{VOTERS}={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
default.replication.factor={nodes}
min.insync.replicas={majority}
offsets.topic.replication.factor={nodes}
transaction.state.log.replication.factor={nodes}
transaction.state.log.min.isr={majority}
share.coordinator.state.topic.replication.factor={nodes}
share.coordinator.state.topic.min.isr={majority}
{FIXED}"
    );
    for (name, value) in overrides(server) {
        settings += &format!("{name}={value}\n");
    }
    settings
}

/// Small, and quick to notice a consumer or a broker that is gone.
const FIXED: &str = "\
log.dirs=log
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
share.coordinator.state.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=10000
group.consumer.min.heartbeat.interval.ms=200
group.consumer.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=4194304
log.segment.bytes=67108864
log.index.size.max.bytes=1048576
";

/// The same for all nodes, and different for two clusters at the same time: a node that an earlier run left cannot
/// join a later cluster. An id has 22 characters of the URL-safe base64.
fn cluster_id(voters: &str) -> String {
    let port = voters.split(',').next().and_then(|voter| voter.rsplit(':').next());
    format!("semel-test-kafka-{:0>5}", port.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(settings: &'a str, name: &str) -> &'a str {
        settings.lines().filter_map(|line| line.strip_prefix(name)).next_back().unwrap()
    }

    #[test]
    fn three_nodes_replicate_and_one_does_not() {
        let settings = |voters| settings(&KAFKA, 1, "1", "127.0.0.1:2", voters);
        let (one, three) = (settings("1@h:2"), settings("1@h:2,2@h:3,3@h:4"));
        let replicas = |settings: &str| line(settings, "default.replication.factor=").to_owned();
        assert_eq!([replicas(&one), replicas(&three)], ["1", "3"]);
        assert_eq!(line(&one, "min.insync.replicas="), "1");
        assert_eq!(line(&three, "min.insync.replicas="), "2");
    }

    #[test]
    fn an_override_is_the_last_word() {
        let server = KAFKA.args(["--override", "num.partitions=7"]);
        let settings = settings(&server, 1, "1", "127.0.0.1:2", "1@127.0.0.1:2");
        assert_eq!(line(&settings, "num.partitions="), "7");
    }

    #[test]
    fn a_cluster_id_has_22_characters() {
        for voters in ["1@127.0.0.1:80", "1@127.0.0.1:15000,2@127.0.0.1:15001"] {
            assert_eq!(cluster_id(voters).len(), 22, "{voters}");
        }
    }
}
