//! Runs a benchmark with the servers and programs that it needs.

use anyhow::Result;
use semel_servers::{KAFKA, NATS, POSTGRES, REDIS, Running, command};

use crate::servers;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    match args.split_first().map(|(name, args)| (name.as_str(), args)) {
        Some(("http", args)) => outside_workspace(workspace, "bench/http", "bench-http", args),
        Some(("gateway", args)) => gateway(workspace, args),
        Some(("redis", args)) => redis(workspace, args),
        Some(("postgres", args)) => postgres(workspace, args),
        Some(("nats", args)) => nats(workspace, args),
        Some(("inbox", args)) => inbox(workspace, args),
        Some(("consumer", args)) => consumer(workspace, args),
        Some(("kafka", args)) => kafka(workspace, args),
        Some(("cached", args)) => remote(workspace, "cached", &[], args),
        // Two programs, because a counting allocator would distort the measured times.
        _ => ["time", "space"].into_iter().try_for_each(|program| {
            let cargo = ["run", "--release", "--package", "semel-bench", "--bin", program, "--"];
            command::run(workspace.cargo(&cargo).args(args))
        }),
    }
}

/// Runs a package outside the workspace: it builds competing libraries that nothing else needs.
fn outside_workspace(
    workspace: &Workspace,
    package: &str,
    target: &str,
    args: &[String],
) -> Result<()> {
    let manifest = format!("{package}/Cargo.toml");
    let target = workspace.root().join("target").join(target);
    let mut cargo = workspace.cargo(&["run", "--release", "--manifest-path", &manifest, "--"]);
    command::run(cargo.env("CARGO_TARGET_DIR", target).args(args))
}

/// Starts a Redis without persistence, and compares the store with redis-benchmark.
fn redis(workspace: &Workspace, args: &[String]) -> Result<()> {
    REDIS.install.ensure(&workspace.tools())?;
    let server = Running::start(&REDIS)?;
    let benchmark = server.program().with_file_name("redis-benchmark");
    let (url, port) = (server.url().to_owned(), server.port().to_string());
    let benchmark = benchmark.display().to_string();
    remote(workspace, "redis", &["--url", &url, "--port", &port, "--benchmark", &benchmark], args)
}

/// Starts a PostgreSQL that syncs every commit, and compares the store with pgbench.
fn postgres(workspace: &Workspace, args: &[String]) -> Result<()> {
    POSTGRES.install.ensure(&workspace.tools())?;
    let server = Running::start(&POSTGRES)?;
    let pgbench = server.program().with_file_name("pgbench").display().to_string();
    let (url, port) = (server.url().to_owned(), server.port().to_string());
    remote(workspace, "postgres", &["--url", &url, "--port", &port, "--pgbench", &pgbench], args)
}

/// Starts a PostgreSQL that syncs every commit.
fn inbox(workspace: &Workspace, args: &[String]) -> Result<()> {
    POSTGRES.install.ensure(&workspace.tools())?;
    let server = Running::start(&POSTGRES)?;
    let url = server.url().to_owned();
    remote(workspace, "inbox", &["--url", &url], args)
}

/// Starts a NATS server, and compares the store with plain publishes.
fn nats(workspace: &Workspace, args: &[String]) -> Result<()> {
    NATS.install.ensure(&workspace.tools())?;
    let server = Running::start(&NATS)?;
    let url = server.url().to_owned();
    remote(workspace, "nats", &["--url", &url], args)
}

/// Events through the pipeline of a consumer, in memory and over a NATS server.
fn consumer(workspace: &Workspace, args: &[String]) -> Result<()> {
    NATS.install.ensure(&workspace.tools())?;
    let server = Running::start(&NATS)?;
    let cargo = ["run", "--release", "--package", "semel-bench", "--bin", "consumer", "--"];
    command::run(workspace.cargo(&cargo).args(["--url", server.url()]).args(args))
}

/// Events of a Kafka topic through the pipeline of a consumer, with the memory store and with the inbox.
fn kafka(workspace: &Workspace, args: &[String]) -> Result<()> {
    for server in [KAFKA, POSTGRES] {
        server.install.ensure(&workspace.tools())?;
    }
    let (kafka, postgres) = (Running::start(&KAFKA)?, Running::start(&POSTGRES)?);
    let mut bench = workspace.cargo(&["run", "--release", "--package", "semel-bench"]);
    bench.args(["--features", "kafka", "--bin", "kafka", "--", "--url", kafka.url()]);
    command::run(bench.args(["--postgres-url", postgres.url()]).args(args))
}

fn remote(workspace: &Workspace, name: &str, server: &[&str], args: &[String]) -> Result<()> {
    let cargo = ["run", "--release", "--package", "semel-bench", "--bin", "remote", "--", name];
    command::run(workspace.cargo(&cargo).args(server).args(args))
}

/// Compares the gateway with nginx, using the binary that users get.
fn gateway(workspace: &Workspace, args: &[String]) -> Result<()> {
    let nginx = servers::NGINX.ensure(&workspace.tools())?;
    // Built alone: in one build with other packages it would get the features that they ask for.
    command::run(&mut workspace.cargo(&["build", "--release", "--package", "semel-cli"]))?;
    let cargo = ["run", "--release", "--package", "semel-bench", "--bin", "gateway", "--"];
    let mut bench = workspace.cargo(&cargo);
    bench.arg("--semel").arg(workspace.target().join("release/semel"));
    bench.arg("--nginx").arg(nginx).arg("--folder").arg(workspace.scratch().join("bench-gateway"));
    command::run(bench.args(args))
}
