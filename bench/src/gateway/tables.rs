//! The figures as text, beside the goals.

use semel_bench::report::{middle, range};

use crate::{
    bench::Run,
    closed::{Runs, find},
    open::HalfLoad,
    side::{Side, Workload},
    table::Table,
};

/// Percent of nginx's requests per second of processor time, passing requests through.
const OF_NGINX: f64 = 70.0;

/// Percent of what passing a request on takes of gateway and upstream.
const REPLAY_OF_CALL: f64 = 100.0;

/// Milliseconds that a gateway may add to p99 at half load.
fn added_goal(gateway: Side) -> f64 {
    match gateway {
        Side::Embedded => 5.0,
        Side::Direct | Side::Nginx | Side::Memory => 1.0,
    }
}

/// Prints all figures, then the goals.
pub(crate) fn print(closed: &[Runs], open: &[HalfLoad]) {
    println!("Closed loop, CPU in µs per request:\n");
    print_closed(closed);
    if open.is_empty() {
        return;
    }
    println!("Open loop at half load, first-seen, latency from when a request was due:\n");
    print_open(open);
    print_goals(closed, open);
}

fn print_closed(closed: &[Runs]) {
    let head = ["", "side", "K requests/s", "p50 ms", "p99 ms", "CPU of proxy", "CPU of upstream"];
    let mut table = Table::new(&head);
    for Runs { workload, side, runs } in closed {
        let all = |figure: fn(&Run) -> f64, digits| range(runs.iter().map(figure), digits);
        let proxy = if *side == Side::Direct { String::new() } else { all(|run| run.proxy_cpu, 1) };
        table.row([
            workload.name().to_owned(),
            side.name().to_owned(),
            all(|run| run.rate / 1e3, 1),
            all(|run| run.p50, 2),
            all(|run| run.p99, 2),
            proxy,
            all(|run| run.upstream_cpu, 1),
        ]);
    }
    table.print();
}

fn print_open(open: &[HalfLoad]) {
    let mut table = Table::new(&["half load of", "side", "K requests/s", "p50 ms", "p99 ms"]);
    for load in open {
        for (side, runs) in &load.runs {
            let all = |figure: fn(&Run) -> f64, digits| range(runs.iter().map(figure), digits);
            table.row([
                format!("{}: {:.1} K/s", load.gateway.name(), load.rate / 1e3),
                side.name().to_owned(),
                all(|run| run.rate / 1e3, 1),
                all(|run| run.p50, 2),
                all(|run| run.p99, 2),
            ]);
        }
    }
    table.print();
}

fn print_goals(closed: &[Runs], open: &[HalfLoad]) {
    let mut goals = Goals(Table::new(&["", "figure", "goal", ""]));
    for gateway in Side::GATEWAYS {
        for workload in [Workload::Get, Workload::UnKeyed] {
            goals.beside_nginx(closed, workload, gateway);
        }
        goals.replay(closed, gateway);
    }
    for load in open {
        goals.added(load);
        goals.disk(load);
    }
    goals.0.print();
}

struct Goals(Table);

impl Goals {
    fn beside_nginx(&mut self, closed: &[Runs], workload: Workload, gateway: Side) {
        let runs = |side| find(closed, workload, side);
        let Some((ours, nginx)) = runs(gateway).zip(runs(Side::Nginx)) else { return };
        let ratio = || pairs(ours, nginx, |our, nginx| 1e2 * nginx.proxy_cpu / our.proxy_cpu);
        let what =
            format!("{}, {}: requests per CPU second of nginx's", workload.name(), gateway.name());
        let met = middle(ratio()) >= OF_NGINX;
        self.judged(what, format!("{} %", range(ratio(), 0)), format!("≥ {OF_NGINX} %"), met);
    }

    /// A replay saves the gateway's side of the call and all of the upstream's. Both stand in a run
    /// of requests that are passed through. This upstream does nothing: no other would cost less.
    fn replay(&mut self, closed: &[Runs], gateway: Side) {
        let runs = |workload| find(closed, workload, gateway);
        let Some((replay, passed)) = runs(Workload::Replay).zip(runs(Workload::UnKeyed)) else {
            return;
        };
        let share = || {
            pairs(replay, passed, |replay, passed| 1e2 * replay.whole_cpu() / passed.whole_cpu())
        };
        let what = format!("replay, {}: CPU of passing the request on", gateway.name());
        let met = middle(share()) < REPLAY_OF_CALL;
        self.judged(what, format!("{} %", range(share(), 0)), format!("< {REPLAY_OF_CALL} %"), met);
        let Some(direct) = find(closed, Workload::Replay, Side::Direct) else { return };
        let alone =
            pairs(replay, direct, |replay, direct| 1e2 * replay.proxy_cpu / direct.upstream_cpu);
        let what = format!("replay, {}: CPU of this upstream alone", gateway.name());
        self.0.row([what, format!("{} %", range(alone, 0)), String::new(), String::new()]);
    }

    fn added(&mut self, load: &HalfLoad) {
        let direct = load.find(Side::Direct).unwrap_or_default();
        for side in [Side::Nginx, load.gateway] {
            let Some(runs) = load.find(side) else { continue };
            let added = || pairs(runs, direct, |run, direct| run.p99 - direct.p99);
            let what = format!("{}: p99 added at {:.1} K/s", side.name(), load.rate / 1e3);
            let figure = format!("{} ms", range(added(), 2));
            if side == load.gateway {
                let goal = added_goal(side);
                self.judged(what, figure, format!("< {goal} ms"), middle(added()) < goal);
            } else {
                self.0.row([what, figure, String::new(), String::new()]);
            }
        }
    }

    fn disk(&mut self, load: &HalfLoad) {
        if !load.two_syncs.is_empty() {
            let figure = format!("{} ms", range(load.two_syncs.iter().copied(), 2));
            self.0.row([
                "two syncs of this disk, p99".to_owned(),
                figure,
                String::new(),
                String::new(),
            ]);
        }
    }

    fn judged(&mut self, what: String, figure: String, goal: String, met: bool) {
        let verdict = if met { "met" } else { "missed" };
        self.0.row([what, figure, goal, verdict.to_owned()]);
    }
}

/// Two series of the same repeats: neighbours slow both down.
fn pairs(
    ours: &[Run],
    theirs: &[Run],
    figure: impl Fn(&Run, &Run) -> f64,
) -> impl Iterator<Item = f64> {
    ours.iter().zip(theirs).map(move |(our, their)| figure(our, their))
}
