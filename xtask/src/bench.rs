//! Benchmarks, and what they need beside themselves.

use anyhow::Result;
use semel_servers::command;

use crate::servers;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    match args.split_first().map(|(name, args)| (name.as_str(), args)) {
        Some(("bakeoff", args)) => apart(workspace, "bench/bakeoff", "bakeoff", args),
        Some(("http", args)) => apart(workspace, "bench/http", "bench-http", args),
        Some(("gateway", args)) => gateway(workspace, args),
        // Two programs: counting allocations would cost time where there are many.
        _ => ["time", "space"].into_iter().try_for_each(|half| {
            let cargo = ["run", "--release", "--package", "semel-bench", "--bin", half, "--"];
            command::run(workspace.cargo(&cargo).args(args))
        }),
    }
}

/// In a package of its own, since it builds rivals that nothing else needs.
fn apart(workspace: &Workspace, package: &str, target: &str, args: &[String]) -> Result<()> {
    let manifest = format!("{package}/Cargo.toml");
    let target = workspace.root().join("target").join(target);
    let mut cargo = workspace.cargo(&["run", "--release", "--manifest-path", &manifest, "--"]);
    command::run(cargo.env("CARGO_TARGET_DIR", target).args(args))
}

/// Beside nginx, with the binary that users get.
fn gateway(workspace: &Workspace, args: &[String]) -> Result<()> {
    let nginx = servers::NGINX.ensure(&workspace.tools())?;
    // A build of its own: built with others, it would get features that only they ask for.
    command::run(&mut workspace.cargo(&["build", "--release", "--package", "semel-cli"]))?;
    let cargo = ["run", "--release", "--package", "semel-bench", "--bin", "gateway", "--"];
    let mut bench = workspace.cargo(&cargo);
    bench.arg("--semel").arg(workspace.target().join("release/semel"));
    bench.arg("--nginx").arg(nginx).arg("--folder").arg(workspace.scratch().join("bench-gateway"));
    command::run(bench.args(args))
}
