//! Runs the concurrent parts of core and remote stores under thousands of schedules, see docs/adr/0010-schedules.md.

use std::fs;
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Result, ensure};
use clap::Args;
use semel_servers::command;

use crate::gate::GateStage;
use crate::workspace::Workspace;

pub(crate) const STAGE: GateStage = GateStage {
    name: "schedules",
    fix: "correct the broken promise; `cargo xtask schedules NAME` repeats one test, and \
          `cargo xtask schedules NAME --replay 'SCHEDULE'` the schedule it printed",
    run: |gate| {
        gate.run_beside_tests("schedules-clippy", &mut clippy(&gate.workspace))?;
        let mut tests = ScheduleOptions::default().tests(&gate.workspace)?;
        gate.run_beside_tests("schedules", &mut tests)?;
        // Cargo succeeds when no name matches.
        let output = fs::read_to_string(gate.workspace.logs().join("schedules.log"))?;
        ensure!(every_package_ran_tests(&output), "a package with shuttle ran no schedule test");
        Ok(())
    },
};

fn every_package_ran_tests(output: &str) -> bool {
    let mut results = output.lines().filter(|line| line.starts_with("test result: ")).peekable();
    results.peek().is_some() && results.all(|line| !line.contains(" 0 passed"))
}

/// Which schedule tests to run, and how often.
#[derive(Debug, Default, Args)]
pub(crate) struct ScheduleOptions {
    /// Run the tests whose name contains this. Default: all.
    name: Option<String>,
    /// Random schedules for each test, from a new seed every time. Default: the schedules of the gate.
    #[arg(long)]
    count: Option<u64>,
    /// The schedule to repeat: all lines that a failing test printed.
    #[arg(long, requires = "name", conflicts_with = "count")]
    replay: Option<String>,
}

impl ScheduleOptions {
    /// All tests, under `count` random schedules each.
    pub(crate) fn with_count(count: u64) -> Self {
        Self { count: Some(count), ..Self::default() }
    }

    /// Runs the tests, and prints how many schedules each explored and how long it took.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<()> {
        command::run(self.tests(workspace)?.arg("--show-output"))
    }

    fn tests(&self, workspace: &Workspace) -> Result<Command> {
        let mut tests = cargo(workspace, "test");
        tests.arg("--").arg(self.name.as_deref().unwrap_or("::schedules::"));
        // The other unit tests of these packages need the real primitives.
        tests.args(["--skip", "::tests::"]);
        // Only the arguments decide on number and seed, not the environment: a test proves the same everywhere.
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

/// Some code is compiled in this stage only, so clippy checks it here.
fn clippy(workspace: &Workspace) -> Command {
    let mut clippy = cargo(workspace, "clippy");
    clippy.args(["--profile", "test", "--", "-D", "warnings"]);
    clippy
}

/// `cargo SUBCOMMAND` for the libraries that have schedule tests: those that depend on shuttle.
///
/// With `--cfg shuttle` they use shuttle's locks, channels and clock, so they have a separate build.
fn cargo(workspace: &Workspace, subcommand: &str) -> Command {
    let mut cargo = workspace.low_priority_cargo(&[subcommand, "--lib"]);
    for package in workspace.packages().iter().filter(|package| package.depends_on("shuttle")) {
        cargo.args(["--package", &package.name]);
    }
    cargo
        .env("RUSTFLAGS", "--cfg shuttle")
        .env("CARGO_TARGET_DIR", workspace.scratch().join("schedules"))
        // Without optimisation the tests would take minutes.
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        // Tests of planted bugs panic on purpose; their backtraces help in no way.
        .env("RUST_BACKTRACE", "0");
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_schedule_tests_is_noticed() {
        let (some, none) =
            ("test result: ok. 12 passed; 0 failed\n", "test result: ok. 0 passed; 0 failed\n");
        assert!(every_package_ran_tests(&some.repeat(2)));
        assert!(!every_package_ran_tests(&format!("{some}{none}")));
        assert!(!every_package_ran_tests(""));
    }
}
