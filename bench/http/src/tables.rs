//! The figures as text, beside the goals.

use anyhow::Result;
use semel_bench::report::{line, middle, range};

use crate::{
    compare::{Run, Runs},
    server::Server,
    side::{Side, Workload},
};

/// What semel's layer should reach under one workload.
struct Goals {
    /// Percent of the bare server's throughput.
    of_bare: f64,
    /// Microseconds of processor time per request above the bare server's: 1.4 times what a layer
    /// took that hashes, claims and keeps, and knows no lease, expiry or limit.
    added_cpu: f64,
    /// Times the throughput of axum-idempotent, where there is a goal.
    of_rival: Option<f64>,
}

impl Goals {
    fn of(side: Side, workload: Workload) -> Option<Self> {
        match (side, workload) {
            (Side::Bare | Side::Naive | Side::AxumIdempotent, _)
            | (Side::Semel, Workload::UnKeyed) => None,
            (Side::Semel, Workload::FirstSeen) => {
                Some(Self { of_bare: 90.0, added_cpu: 1.4 * 6.0, of_rival: Some(1.8) })
            }
            (Side::Semel, Workload::Replay) => {
                Some(Self { of_bare: 90.0, added_cpu: 1.4 * 4.5, of_rival: None })
            }
        }
    }
}

/// Prints all rows, in their order.
pub(crate) fn print(table: &[Runs]) {
    for row in table {
        describe(row);
        let runs_of = |side| {
            let other =
                table.iter().find(|other| (other.workload, other.side) == (row.workload, side));
            other.map(|other| &other.runs)
        };
        let goals = Goals::of(row.side, row.workload);
        if let Some(bare) = runs_of(Side::Bare).filter(|_| row.side != Side::Bare) {
            beside_bare(&row.runs, bare, goals.as_ref());
        }
        if let Some(rival) = runs_of(Side::AxumIdempotent).filter(|_| row.side == Side::Semel) {
            beside_rival(&row.runs, rival, goals.and_then(|goals| goals.of_rival));
        }
    }
    let load = range(table.iter().flat_map(|row| &row.runs).map(|run| run.load_cpu), 1);
    line("the load itself", &format!("CPU {load} µs"), "", None);
}

/// What a server holds in the end.
pub(crate) fn memory(server: &Server) -> Result<()> {
    let figure = format!("{} MB", server.megabytes()?);
    line(&format!("resident, {}", server.side.name()), &figure, "", None);
    Ok(())
}

fn describe(row: &Runs) {
    let all = |figure: fn(&Run) -> f64, digits| range(row.runs.iter().map(figure), digits);
    let rate = all(|run| run.rate / 1e3, 1);
    let cpu = all(|run| run.cpu, 1);
    let what = format!("{}, {}", row.workload.name(), row.side.name());
    line(&what, &format!("{rate} K/s, CPU {cpu} µs"), "", None);
    let (p50, p99) = (all(|run| run.p50 / 1e3, 2), all(|run| run.p99 / 1e3, 2));
    line("", &format!("p50 {p50} ms, p99 {p99} ms"), "", None);
}

fn beside_bare(ours: &[Run], bare: &[Run], goals: Option<&Goals>) {
    let ratio = || pairs(ours, bare, |our, bare| 1e2 * our.rate / bare.rate);
    let met = goals.map(|goals| middle(ratio()) >= goals.of_bare);
    let goal = goals.map(|goals| format!("≥ {:.0} %", goals.of_bare)).unwrap_or_default();
    line("", &format!("{} % of bare", range(ratio(), 0)), &goal, met);
    let added = || pairs(ours, bare, |our, bare| our.cpu - bare.cpu);
    let met = goals.map(|goals| middle(added()) <= goals.added_cpu);
    let goal = goals.map(|goals| format!("≤ {:.1} µs", goals.added_cpu)).unwrap_or_default();
    line("", &format!("CPU {} µs above bare", range(added(), 1)), &goal, met);
}

fn beside_rival(ours: &[Run], rival: &[Run], goal: Option<f64>) {
    let ratio = || pairs(ours, rival, |our, rival| our.rate / rival.rate);
    let met = goal.map(|goal| middle(ratio()) >= goal);
    let goal = goal.map(|goal| format!("≥ {goal}x")).unwrap_or_default();
    line("", &format!("{} x axum-idempotent", range(ratio(), 2)), &goal, met);
}

/// Two sides in the same repeats: neighbours slow both down.
fn pairs(
    ours: &[Run],
    theirs: &[Run],
    figure: impl Fn(&Run, &Run) -> f64,
) -> impl Iterator<Item = f64> {
    ours.iter().zip(theirs).map(move |(our, their)| figure(our, their))
}
