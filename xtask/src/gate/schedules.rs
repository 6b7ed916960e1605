//! The concurrent parts of the core under thousands of schedules, see docs/adr/0010-schedules.md.

use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use clap::Args;
use semel_servers::command;

use crate::gate::Stage;
use crate::workspace::Workspace;

pub(crate) const STAGE: Stage = Stage {
    name: "schedules",
    fix: "mend the promise that broke; `cargo xtask schedules NAME` repeats one test, and \
          `cargo xtask schedules NAME --replay 'SCHEDULE'` the schedule it printed",
    run: |gate| {
        gate.run_beside_tests("schedules-clippy", &mut clippy(&gate.workspace))?;
        let mut tests = ScheduleOptions::default().tests(&gate.workspace)?;
        gate.run_beside_tests("schedules", &mut tests)
    },
};

/// Which schedule tests to run, and how often.
#[derive(Debug, Default, Args)]
pub(crate) struct ScheduleOptions {
    /// Tests with this in their name. Left out: all.
    name: Option<String>,
    /// Random schedules for each test, other ones every time. Left out: those of the gate.
    #[arg(long)]
    count: Option<u64>,
    /// One schedule, all lines of it as a failing test printed them.
    #[arg(long, requires = "name", conflicts_with = "count")]
    replay: Option<String>,
}

impl ScheduleOptions {
    /// All tests, under `count` random schedules each.
    pub(crate) fn with_count(count: u64) -> Self {
        Self { count: Some(count), ..Self::default() }
    }

    /// Runs them and shows how many schedules took how long.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<()> {
        command::run(self.tests(workspace)?.arg("--show-output"))
    }

    fn tests(&self, workspace: &Workspace) -> Result<Command> {
        let mut tests = cargo(
            workspace,
            &["test", "--package", "semel-core", "--package", "semel-remote", "--lib", "--"],
        );
        tests.arg(self.name.as_deref().unwrap_or("::schedules::"));
        // The other tests of the core need the real primitives.
        tests.args(["--skip", "::tests::"]);
        // What a test proves does not hang on who runs it: only the arguments say how often.
        for variable in ["SEMEL_SCHEDULES", "SEMEL_REPLAY", "SHUTTLE_RANDOM_SEED"] {
            tests.env_remove(variable);
        }
        if let Some(count) = self.count {
            let seed = UNIX_EPOCH.elapsed()?.as_secs();
            tests.env("SEMEL_SCHEDULES", count.to_string());
            tests.env("SHUTTLE_RANDOM_SEED", seed.to_string());
        }
        if let Some(schedule) = &self.replay {
            tests.env("SEMEL_REPLAY", schedule);
        }
        Ok(tests)
    }
}

/// What is compiled here only, no other stage sees.
fn clippy(workspace: &Workspace) -> Command {
    let args = [
        "clippy",
        "--package",
        "semel-core",
        "--package",
        "semel-remote",
        "--lib",
        "--profile",
        "test",
    ];
    let mut clippy = cargo(workspace, &args);
    clippy.args(["--", "-D", "warnings"]);
    clippy
}

/// With `--cfg shuttle` the core's locks, channels and clock are shuttle's; so it has a build of its own.
fn cargo(workspace: &Workspace, args: &[&str]) -> Command {
    let mut cargo = workspace.low_priority_cargo(args);
    cargo
        .env("RUSTFLAGS", "--cfg shuttle")
        .env("CARGO_TARGET_DIR", workspace.scratch().join("schedules"))
        // Unoptimised, the tests would take minutes.
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        // A bug that is caught panics; nobody wants to see from where.
        .env("RUST_BACKTRACE", "0");
    cargo
}
