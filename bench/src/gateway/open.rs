//! The open loop: latency at half load. Each gateway, and the sides that it is compared with, gets half of the rate of
//! first-seen requests that the gateway reached in the closed loop.

use anyhow::{Context, Result};
use semel_bench::report::middle;

use crate::{
    bench::{FreshKeys, GatewayRun, GatewaySetup, Loop},
    closed::{self, ClosedRuns},
    disk,
    options::GatewayBenchOptions,
    side::{GatewayWorkload, ProxySide},
};

/// The runs of several sides at one rate.
pub(crate) struct HalfLoad {
    pub(crate) gateway: ProxySide,
    pub(crate) rate: f64,
    /// By side, then by repeat. The upstream itself is the first.
    pub(crate) runs: Vec<(ProxySide, Vec<GatewayRun>)>,
    /// The time of two disk syncs, in milliseconds by repeat, for gateways that need them.
    pub(crate) two_syncs: Vec<f64>,
}

pub(crate) async fn run(
    options: &GatewayBenchOptions,
    closed: &[ClosedRuns],
) -> Result<Vec<HalfLoad>> {
    let mut loads = ProxySide::GATEWAYS
        .into_iter()
        .filter_map(|gateway| HalfLoad::of(gateway, options, closed))
        .collect::<Vec<_>>();
    let fresh = FreshKeys::default();
    for repeat in 0..options.repeats() {
        for load in &mut loads {
            load.repeat(options, &fresh, repeat).await?;
        }
    }
    Ok(loads)
}

impl HalfLoad {
    fn of(
        gateway: ProxySide,
        options: &GatewayBenchOptions,
        closed: &[ClosedRuns],
    ) -> Option<Self> {
        let reached = closed::find(closed, GatewayWorkload::FirstSeen, gateway)?;
        let rate = middle(reached.iter().map(|run| run.rate)) / 2.0;
        let beside = |side: &ProxySide| !ProxySide::GATEWAYS.contains(side) || *side == gateway;
        let sides = options.sides().into_iter().filter(beside);
        let runs = sides.map(|side| (side, Vec::new())).collect();
        Some(Self { gateway, rate, runs, two_syncs: Vec::new() })
    }

    async fn repeat(
        &mut self,
        options: &GatewayBenchOptions,
        fresh: &FreshKeys,
        repeat: usize,
    ) -> Result<()> {
        let sides: Vec<_> = self.runs.iter().map(|(side, _)| *side).collect();
        let mut site = GatewaySetup::start(options, fresh, &sides).await?;
        // Another side goes first in each repeat.
        for turn in 0..sides.len() {
            let server = (repeat + turn) % sides.len();
            let run = site.measure(server, GatewayWorkload::FirstSeen, Loop::Open(self.rate)).await;
            let run = run.with_context(|| format!("{}, half load", sides[server].name()))?;
            self.runs[server].1.push(run);
        }
        if self.gateway == ProxySide::Embedded {
            self.two_syncs.push(disk::two_syncs(options)?);
        }
        Ok(())
    }

    /// The runs of `side`.
    pub(crate) fn find(&self, side: ProxySide) -> Option<&[GatewayRun]> {
        let runs = self.runs.iter().find(|(other, _)| *other == side);
        runs.map(|(_, runs)| runs.as_slice())
    }
}
