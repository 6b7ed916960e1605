//! What a request waits at half load: each gateway, and what stands beside it, at half of the rate
//! of first-seen requests that the gateway reached in the closed loop.

use anyhow::{Context, Result};
use semel_bench::report::middle;

use crate::{
    bench::{Fresh, Loop, Run, Site},
    closed::{self, Runs},
    disk,
    options::Options,
    side::{Side, Workload},
};

/// The runs of several sides at one rate.
pub(crate) struct HalfLoad {
    pub(crate) gateway: Side,
    pub(crate) rate: f64,
    /// By side, then by repeat; the upstream itself is the first.
    pub(crate) runs: Vec<(Side, Vec<Run>)>,
    /// What two syncs of the disk took meanwhile, where the gateway needs them: milliseconds by
    /// repeat.
    pub(crate) two_syncs: Vec<f64>,
}

pub(crate) async fn run(options: &Options, closed: &[Runs]) -> Result<Vec<HalfLoad>> {
    let mut loads = Side::GATEWAYS
        .into_iter()
        .filter_map(|gateway| HalfLoad::of(gateway, options, closed))
        .collect::<Vec<_>>();
    let fresh = Fresh::default();
    for repeat in 0..options.repeats() {
        for load in &mut loads {
            load.repeat(options, &fresh, repeat).await?;
        }
    }
    Ok(loads)
}

impl HalfLoad {
    fn of(gateway: Side, options: &Options, closed: &[Runs]) -> Option<Self> {
        let reached = closed::find(closed, Workload::FirstSeen, gateway)?;
        let rate = middle(reached.iter().map(|run| run.rate)) / 2.0;
        let beside = |side: &Side| !Side::GATEWAYS.contains(side) || *side == gateway;
        let sides = options.sides().into_iter().filter(beside);
        let runs = sides.map(|side| (side, Vec::new())).collect();
        Some(Self { gateway, rate, runs, two_syncs: Vec::new() })
    }

    async fn repeat(&mut self, options: &Options, fresh: &Fresh, repeat: usize) -> Result<()> {
        let sides: Vec<_> = self.runs.iter().map(|(side, _)| *side).collect();
        let mut site = Site::start(options, fresh, &sides).await?;
        // Another side goes first each time.
        for turn in 0..sides.len() {
            let server = (repeat + turn) % sides.len();
            let run = site.measure(server, Workload::FirstSeen, Loop::Open(self.rate)).await;
            let run = run.with_context(|| format!("{}, half load", sides[server].name()))?;
            self.runs[server].1.push(run);
        }
        if self.gateway == Side::Embedded {
            self.two_syncs.push(disk::two_syncs(options)?);
        }
        Ok(())
    }

    /// The runs of `side`.
    pub(crate) fn find(&self, side: Side) -> Option<&[Run]> {
        let runs = self.runs.iter().find(|(other, _)| *other == side);
        runs.map(|(_, runs)| runs.as_slice())
    }
}
