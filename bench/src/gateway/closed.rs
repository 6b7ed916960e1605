//! What each side does at most: all sides under all workloads, in turns, so that a busy minute of
//! the machine hits all of them.

use anyhow::{Context, Result};

use crate::{
    bench::{Fresh, Loop, Run, Site},
    options::Options,
    side::{Side, Workload},
};

/// The runs of one side under one workload, by repeat.
pub(crate) struct Runs {
    pub(crate) workload: Workload,
    pub(crate) side: Side,
    pub(crate) runs: Vec<Run>,
}

pub(crate) async fn run(options: &Options) -> Result<Vec<Runs>> {
    let mut sides = options.sides();
    let mut table: Vec<Runs> = Workload::ALL
        .into_iter()
        .flat_map(|workload| sides.iter().map(move |&side| (workload, side)))
        .filter(|(workload, side)| side.takes(*workload))
        .map(|(workload, side)| Runs { workload, side, runs: Vec::new() })
        .collect();
    let fresh = Fresh::default();
    for _ in 0..options.repeats() {
        repeat(options, &fresh, &sides, &mut table).await?;
        // Whoever went first goes last, so that no side always follows the same one.
        sides.rotate_left(1);
    }
    Ok(table)
}

async fn repeat(
    options: &Options,
    fresh: &Fresh,
    sides: &[Side],
    table: &mut [Runs],
) -> Result<()> {
    let mut site = Site::start(options, fresh, sides).await?;
    for workload in Workload::ALL {
        for (server, &side) in sides.iter().enumerate().filter(|(_, side)| side.takes(workload)) {
            let run = site.measure(server, workload, Loop::Closed).await;
            let run = run.with_context(|| format!("{}, {}", workload.name(), side.name()))?;
            let runs = table.iter_mut().find(|runs| (runs.workload, runs.side) == (workload, side));
            runs.context("the table has all that is measured")?.runs.push(run);
        }
    }
    Ok(())
}

/// The runs of a side under a workload, if it was measured.
pub(crate) fn find(table: &[Runs], workload: Workload, side: Side) -> Option<&[Run]> {
    let runs = table.iter().find(|runs| (runs.workload, runs.side) == (workload, side));
    runs.map(|runs| runs.runs.as_slice())
}
