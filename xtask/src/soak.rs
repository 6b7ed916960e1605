//! The long runs, for a night or before a release: `cargo xtask soak`.
//!
//! Each part is also a command of its own. The gate has a short form of every part but coverage.

use anyhow::{Result, ensure};
use semel_servers::command;

use crate::crash::{self, CrashOptions};
use crate::gate::{GateReport, ScheduleOptions};
use crate::stall::{self, StallOptions};
use crate::workspace::Workspace;
use crate::{coverage, model};

/// Random schedules for each test, ten times as many as in the gate and from another seed.
const SCHEDULES: u64 = 100_000;

/// Runs all parts in order. A failure does not stop the others.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let report = GateReport::default();
    let mut failed = Vec::new();
    let mut part = |name: &str, run: &dyn Fn() -> Result<()>| {
        command::permit()?;
        if let Err(error) = report.time(name, run) {
            failed.push(format!("{name}: {error:#}"));
        }
        command::permit()
    };
    part("model", &|| model::run(workspace))?;
    part("schedules", &|| ScheduleOptions::with_count(SCHEDULES).run(workspace))?;
    for store in crash::STORES {
        part(&format!("crash {store}"), &|| crash::run(workspace, &CrashOptions::new(store)))?;
    }
    for store in stall::STORES {
        part(&format!("stall {store}"), &|| stall::run(workspace, &StallOptions::new(store)))?;
    }
    part("coverage", &|| coverage::run(workspace))?;
    report.print();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
