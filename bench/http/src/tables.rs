//! Prints the figures and the goals.

use anyhow::Result;
use semel_bench::report::{line, middle, range};

use crate::{
    compare::{HttpRun, HttpRuns},
    server::BenchServer,
    side::{HttpWorkload, ServerSide},
};

/// The goals of semel's layer under one workload.
struct HttpGoals {
    /// Percent of the bare server's throughput.
    of_bare: f64,
    /// Microseconds of processor time per request above the bare server's: 1.4 times the cost of a layer that hashes,
    /// claims and keeps, without leases, expiry and limits.
    added_cpu: f64,
    /// Multiple of the throughput of axum-idempotent, where there is a goal.
    of_rival: Option<f64>,
}

impl HttpGoals {
    fn of(side: ServerSide, workload: HttpWorkload) -> Option<Self> {
        match (side, workload) {
            (ServerSide::Bare | ServerSide::Naive | ServerSide::AxumIdempotent, _)
            | (ServerSide::Semel, HttpWorkload::UnKeyed) => None,
            (ServerSide::Semel, HttpWorkload::FirstSeen) => {
                Some(Self { of_bare: 90.0, added_cpu: 1.4 * 6.0, of_rival: Some(1.8) })
            }
            (ServerSide::Semel, HttpWorkload::Replay) => {
                Some(Self { of_bare: 90.0, added_cpu: 1.4 * 4.5, of_rival: None })
            }
        }
    }
}

/// Prints all rows, in their order.
pub(crate) fn print(table: &[HttpRuns]) {
    for row in table {
        describe(row);
        let runs_of = |side| {
            let other =
                table.iter().find(|other| (other.workload, other.side) == (row.workload, side));
            other.map(|other| &other.runs)
        };
        let goals = HttpGoals::of(row.side, row.workload);
        if let Some(bare) = runs_of(ServerSide::Bare).filter(|_| row.side != ServerSide::Bare) {
            beside_bare(&row.runs, bare, goals.as_ref());
        }
        if let Some(rival) =
            runs_of(ServerSide::AxumIdempotent).filter(|_| row.side == ServerSide::Semel)
        {
            beside_rival(&row.runs, rival, goals.and_then(|goals| goals.of_rival));
        }
    }
    let load = range(table.iter().flat_map(|row| &row.runs).map(|run| run.load_cpu), 1);
    line("the load itself", &format!("CPU {load} µs"), "", None);
}

/// Prints the memory of a server at the end.
pub(crate) fn memory(server: &BenchServer) -> Result<()> {
    let figure = format!("{} MB", server.megabytes()?);
    line(&format!("resident, {}", server.side.name()), &figure, "", None);
    Ok(())
}

fn describe(row: &HttpRuns) {
    let all = |figure: fn(&HttpRun) -> f64, digits| range(row.runs.iter().map(figure), digits);
    let rate = all(|run| run.rate / 1e3, 1);
    let cpu = all(|run| run.cpu, 1);
    let what = format!("{}, {}", row.workload.name(), row.side.name());
    line(&what, &format!("{rate} K/s, CPU {cpu} µs"), "", None);
    let (p50, p99) = (all(|run| run.p50 / 1e3, 2), all(|run| run.p99 / 1e3, 2));
    line("", &format!("p50 {p50} ms, p99 {p99} ms"), "", None);
}

fn beside_bare(ours: &[HttpRun], bare: &[HttpRun], goals: Option<&HttpGoals>) {
    let ratio = || pairs(ours, bare, |our, bare| 1e2 * our.rate / bare.rate);
    let met = goals.map(|goals| middle(ratio()) >= goals.of_bare);
    let goal = goals.map(|goals| format!("≥ {:.0} %", goals.of_bare)).unwrap_or_default();
    line("", &format!("{} % of bare", range(ratio(), 0)), &goal, met);
    let added = || pairs(ours, bare, |our, bare| our.cpu - bare.cpu);
    let met = goals.map(|goals| middle(added()) <= goals.added_cpu);
    let goal = goals.map(|goals| format!("≤ {:.1} µs", goals.added_cpu)).unwrap_or_default();
    line("", &format!("CPU {} µs above bare", range(added(), 1)), &goal, met);
}

fn beside_rival(ours: &[HttpRun], rival: &[HttpRun], goal: Option<f64>) {
    let ratio = || pairs(ours, rival, |our, rival| our.rate / rival.rate);
    let met = goal.map(|goal| middle(ratio()) >= goal);
    let goal = goal.map(|goal| format!("≥ {goal}x")).unwrap_or_default();
    line("", &format!("{} x axum-idempotent", range(ratio(), 2)), &goal, met);
}

/// Pairs the values of two sides by repeat: other processes slow both down.
fn pairs(
    ours: &[HttpRun],
    theirs: &[HttpRun],
    figure: impl Fn(&HttpRun, &HttpRun) -> f64,
) -> impl Iterator<Item = f64> {
    ours.iter().zip(theirs).map(move |(our, their)| figure(our, their))
}
