//! The closed loop: the highest rate of each side under each workload. Sides take turns, so that a busy minute of the
//! machine affects all of them.

use anyhow::{Context, Result};

use crate::{
    bench::{FreshKeys, GatewayRun, GatewaySetup, Loop},
    options::GatewayBenchOptions,
    side::{GatewayWorkload, ProxySide},
};

/// The runs of one side under one workload, by repeat.
pub(crate) struct ClosedRuns {
    pub(crate) workload: GatewayWorkload,
    pub(crate) side: ProxySide,
    pub(crate) runs: Vec<GatewayRun>,
}

pub(crate) async fn run(options: &GatewayBenchOptions) -> Result<Vec<ClosedRuns>> {
    let mut sides = options.sides();
    let mut table: Vec<ClosedRuns> = GatewayWorkload::ALL
        .into_iter()
        .flat_map(|workload| sides.iter().map(move |&side| (workload, side)))
        .filter(|(workload, side)| side.takes(*workload))
        .map(|(workload, side)| ClosedRuns { workload, side, runs: Vec::new() })
        .collect();
    let fresh = FreshKeys::default();
    for _ in 0..options.repeats() {
        repeat(options, &fresh, &sides, &mut table).await?;
        // The first side goes last next time, so that no side always follows the same one.
        sides.rotate_left(1);
    }
    Ok(table)
}

async fn repeat(
    options: &GatewayBenchOptions,
    fresh: &FreshKeys,
    sides: &[ProxySide],
    table: &mut [ClosedRuns],
) -> Result<()> {
    let mut site = GatewaySetup::start(options, fresh, sides).await?;
    for workload in GatewayWorkload::ALL {
        for (server, &side) in sides.iter().enumerate().filter(|(_, side)| side.takes(workload)) {
            let run = site.measure(server, workload, Loop::Closed).await;
            let run = run.with_context(|| format!("{}, {}", workload.name(), side.name()))?;
            let runs = table.iter_mut().find(|runs| (runs.workload, runs.side) == (workload, side));
            runs.context("every measured run has a row")?.runs.push(run);
        }
    }
    Ok(())
}

/// The runs of a side under a workload, if it was measured.
pub(crate) fn find(
    table: &[ClosedRuns],
    workload: GatewayWorkload,
    side: ProxySide,
) -> Option<&[GatewayRun]> {
    let runs = table.iter().find(|runs| (runs.workload, runs.side) == (workload, side));
    runs.map(|runs| runs.runs.as_slice())
}
