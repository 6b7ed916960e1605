//! The gate: stages in a fixed order; the first failure ends the run and names its fix.
//!
//! Nothing is skipped for want of a tool or a server: what is missing is installed or is a failure.

mod cargo_stages;
mod core_tree;
mod examples;
mod features;
mod lint;
mod promises;
mod report;
mod schedules;

use std::process::Command;

use anyhow::{Result, anyhow};
use semel_servers::{NATS, POSTGRES, REDIS, Server, VALKEY, command};

use crate::api;
use crate::gate::report::GateReport;
use crate::sdk;
use crate::servers::{FOR_TESTS, TestServers};
use crate::workspace::Workspace;

pub(crate) use schedules::ScheduleOptions;

/// Servers that the workspace's tests need.
const NEEDED: &[&Server] = &[&POSTGRES, &REDIS, &VALKEY, &NATS];

const TEST: &[Stage] = &[
    cargo_stages::TOOLS,
    SERVERS,
    cargo_stages::FMT,
    lint::STAGE,
    promises::STAGE,
    core_tree::STAGE,
    cargo_stages::CLIPPY,
    cargo_stages::TESTS,
    schedules::STAGE,
    cargo_stages::DOCTESTS,
    cargo_stages::DOCS,
    examples::STAGE,
    SDK,
    features::STAGE,
    API,
];

const CHECK: &[Stage] = &[
    cargo_stages::TOOLS,
    cargo_stages::FMT,
    lint::STAGE,
    promises::STAGE,
    cargo_stages::CLIPPY,
    cargo_stages::UNIT_TESTS,
];

const SERVERS: Stage = Stage {
    name: "servers",
    fix: "see what the server said; `cargo xtask servers up NAME` repeats it alone",
    run: |gate| {
        gate.servers = servers(&gate.workspace)?;
        Ok(())
    },
};

const SDK: Stage = Stage {
    name: "sdk",
    fix: "see the row that is wrong; `cargo xtask sdk` repeats it alone",
    run: |gate| sdk::run(&gate.workspace, sdk::GatewayBuild::WithExamples),
};

const API: Stage = Stage {
    name: "api",
    fix: "see docs/adr/0006-gate.md on public-API snapshots",
    run: |gate| api::compare(&gate.workspace),
};

/// Starts the servers that tests need, and installs those that tests start themselves.
pub(crate) fn servers(workspace: &Workspace) -> Result<TestServers> {
    FOR_TESTS.iter().try_for_each(|server| server.install(&workspace.tools()).map(drop))?;
    TestServers::start(workspace, NEEDED)
}

/// Runs everything that CI runs.
pub(crate) fn test(workspace: Workspace) -> Result<()> {
    Gate::new(workspace).pass(TEST)
}

/// Runs the quick half.
pub(crate) fn check(workspace: Workspace) -> Result<()> {
    Gate::new(workspace).pass(CHECK)
}

struct Stage {
    name: &'static str,
    fix: &'static str,
    run: fn(&mut Gate) -> Result<()>,
}

impl Stage {
    fn failure(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("stage `{}`: {error:#}\nfix: {}", self.name, self.fix)
    }
}

struct Gate {
    workspace: Workspace,
    /// Stops its servers when the gate is dropped, however the run ended.
    servers: TestServers,
}

impl Gate {
    fn new(workspace: Workspace) -> Self {
        Self { workspace, servers: TestServers::default() }
    }

    fn pass(mut self, stages: &[Stage]) -> Result<()> {
        let mut report = GateReport::default();
        let result = stages.iter().try_for_each(|stage| {
            let result = report.time(stage.name, || (stage.run)(&mut self));
            // An interrupted stage fails too, but needs no fix.
            result.map_err(|error| command::permit().err().unwrap_or_else(|| stage.failure(&error)))
        });
        drop(self);
        report.print();
        result
    }

    /// `cargo` as a stage runs it: the servers' addresses are in its environment.
    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.workspace.cargo(args);
        command.envs(self.servers.variables());
        command
    }
}
