//! The gate: the checks that a change has to pass. [`test()`] runs all of them, [`check()`] the quick ones.
//!
//! Missing tools and servers are installed, or the run fails: no check is skipped.

mod cargo_stages;
mod core_tree;
mod examples;
mod features;
mod links;
mod lint;
mod locks;
pub(crate) mod output;
mod promises;
mod report;
mod schedules;
mod tests;
mod tools;

use std::num::NonZero;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use semel_servers::{KAFKA, NATS, POSTGRES, REDIS, TestServer, VALKEY, command};

use crate::api;
use crate::cargo_messages::BuildMessages;
use crate::gate::tests::TestScope;
use crate::sdk;
use crate::servers::{FOR_TESTS, TestServers};
use crate::workspace::Workspace;

pub(crate) use report::GateReport;
pub(crate) use schedules::ScheduleOptions;

/// Servers that the workspace's tests need.
const NEEDED: &[&TestServer] = &[&POSTGRES, &REDIS, &VALKEY, &NATS, &KAFKA];

/// What CI runs.
const TEST: GatePlan = GatePlan {
    first: &[
        tools::STAGE,
        cargo_stages::FMT,
        lint::STAGE,
        promises::STAGE,
        links::STAGE,
        locks::STAGE,
        core_tree::STAGE,
        SERVERS,
        tests::BUILD,
    ],
    waiting: &[tests::STAGE, examples::STAGE, SDK],
    computing: &[
        cargo_stages::CLIPPY,
        cargo_stages::DOCTESTS,
        cargo_stages::DOCS,
        API,
        features::STAGE,
        schedules::STAGE,
    ],
};

/// What an engineer runs after every step of work.
const CHECK: GatePlan = GatePlan {
    first: TEST.first,
    waiting: &[tests::STAGE],
    computing: &[cargo_stages::CLIPPY, cargo_stages::DOCS],
};

/// The tests of chosen packages, and nothing else.
const PACKAGES: GatePlan = GatePlan {
    first: &[tools::STAGE, SERVERS, tests::BUILD],
    waiting: &[tests::STAGE],
    computing: &[],
};

const SERVERS: GateStage = GateStage {
    name: "servers",
    fix: "read the server's log above; `cargo xtask servers up NAME` starts it alone",
    run: |gate| {
        let servers = start_servers(&gate.workspace)?;
        gate.servers.set(servers).map_err(|_| anyhow!("the servers run already"))
    },
};

const SDK: GateStage = GateStage {
    name: "sdk",
    fix: "see the row marked WRONG; `cargo xtask sdk` repeats it alone",
    run: |gate| sdk::run(&gate.workspace, sdk::GatewayBuild::Built(gate.built()?)),
};

const API: GateStage = GateStage {
    name: "api",
    fix: "see docs/adr/0006-gate.md on public-API snapshots",
    run: |gate| api::compare(&gate.workspace),
};

/// Runs everything that CI runs; with names of packages, their tests only.
pub(crate) fn test(
    workspace: Workspace,
    packages: Vec<String>,
    options: &GateOptions,
) -> Result<()> {
    if packages.is_empty() {
        GateRun::new(workspace, TestScope::Everything, options).pass(&TEST)
    } else {
        GateRun::new(workspace, TestScope::Packages(packages), options).pass(&PACKAGES)
    }
}

/// Runs the quick part of the gate.
pub(crate) fn check(workspace: Workspace, options: &GateOptions) -> Result<()> {
    GateRun::new(workspace, TestScope::Quick, options).pass(&CHECK)
}

#[derive(Debug, Default, Args)]
pub(crate) struct GateOptions {
    /// How many test binaries run at the same time. Default: the number of cores.
    #[arg(short, long)]
    jobs: Option<NonZero<usize>>,
}

/// Starts the servers that tests need, and installs those that tests start themselves.
pub(crate) fn start_servers(workspace: &Workspace) -> Result<TestServers> {
    FOR_TESTS.iter().try_for_each(|server| server.install(&workspace.tools()).map(drop))?;
    TestServers::start(workspace, NEEDED)
}

/// The stages of one run of the gate.
struct GatePlan {
    /// One after another, before all others. The first failure ends the run.
    first: &'static [GateStage],
    /// One after another. They spend most of their time waiting for servers and leases.
    waiting: &'static [GateStage],
    /// One after another, after `waiting`, also if that failed. They compile.
    computing: &'static [GateStage],
}

/// One check of the gate.
struct GateStage {
    name: &'static str,
    fix: &'static str,
    run: fn(&GateRun) -> Result<()>,
}

struct GateRun {
    workspace: Workspace,
    scope: TestScope,
    /// How many test binaries run at the same time.
    jobs: usize,
    /// The servers stop when the gate is dropped, however the run ended.
    servers: OnceLock<TestServers>,
    built: OnceLock<BuildMessages>,
    report: GateReport,
}

impl GateRun {
    fn new(workspace: Workspace, scope: TestScope, options: &GateOptions) -> Self {
        let jobs = options.jobs.or(thread::available_parallelism().ok()).map_or(1, NonZero::get);
        let (servers, built, report) = Default::default();
        Self { workspace, scope, jobs, servers, built, report }
    }

    fn pass(self, plan: &GatePlan) -> Result<()> {
        let mut result = self.run(plan.first);
        if result.is_ok() {
            // Not side by side: on two cores, compilers take the time in which the leases of chaos runs end.
            result = both(self.run(plan.waiting), self.run(plan.computing));
        }
        let Self { servers, report, .. } = self;
        drop(servers);
        report.print();
        result
    }

    /// Runs the stages in order until one fails.
    fn run(&self, stages: &[GateStage]) -> Result<()> {
        stages.iter().try_for_each(|stage| {
            let result = self.report.time(stage.name, || (stage.run)(self));
            // An interrupted stage fails too, but needs no fix.
            result.map_err(|error| command::permit().err().unwrap_or_else(|| stage.failure(&error)))
        })
    }

    /// `cargo` with the servers' addresses in its environment.
    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.workspace.cargo(args);
        command.envs(self.variables());
        command
    }

    /// `cargo` with the servers' addresses and a low priority, for a stage that computes while tests run.
    fn low_priority_cargo(&self, args: &[&str]) -> Command {
        let mut command = self.workspace.low_priority_cargo(args);
        command.envs(self.variables());
        command
    }

    /// Runs a command whose lines must not mix with those of the tests.
    fn run_beside_tests(&self, stage: &str, command: &mut Command) -> Result<()> {
        output::run_logged(command, &self.workspace.logs().join(format!("{stage}.log")))
    }

    /// The environment variables from which tests learn the servers' addresses and programs.
    fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.servers.get().into_iter().flat_map(TestServers::variables)
    }

    /// What the build stage has built.
    fn built(&self) -> Result<&BuildMessages> {
        self.built.get().context("the build stage did not run")
    }
}

impl GateStage {
    fn failure(&self, error: &Error) -> Error {
        anyhow!("stage `{}`: {error:#}\nfix: {}", self.name, self.fix)
    }
}

/// Both failures, when there are two: one run of the gate should name all.
fn both(one: Result<()>, other: Result<()>) -> Result<()> {
    match (one, other) {
        (Err(one), Err(other)) => Err(anyhow!("{one:#}\n{other:#}")),
        (one, other) => one.and(other),
    }
}
