//! Prints the figures and the goals.

use semel_bench::report::{middle, range};

use crate::{
    bench::GatewayRun,
    closed::{ClosedRuns, find},
    open::HalfLoad,
    side::{GatewayWorkload, ProxySide},
    table::TextTable,
};

/// Goal: requests per second of processor time, in percent of nginx's, for requests that are passed through.
const OF_NGINX: f64 = 70.0;

/// Goal: processor time of a replay, in percent of gateway and upstream for a request that is passed through.
const REPLAY_OF_CALL: f64 = 100.0;

/// Goal: milliseconds that a gateway adds to p99 at half load.
fn added_goal(gateway: ProxySide) -> f64 {
    match gateway {
        ProxySide::Embedded => 5.0,
        ProxySide::Direct | ProxySide::Nginx | ProxySide::Memory => 1.0,
    }
}

/// Prints all figures, then the goals.
pub(crate) fn print(closed: &[ClosedRuns], open: &[HalfLoad]) {
    println!("Closed loop, CPU in µs per request:\n");
    print_closed(closed);
    if open.is_empty() {
        return;
    }
    println!("Open loop at half load, first-seen, latency from when a request was due:\n");
    print_open(open);
    print_goals(closed, open);
}

fn print_closed(closed: &[ClosedRuns]) {
    let head = ["", "side", "K requests/s", "p50 ms", "p99 ms", "CPU of proxy", "CPU of upstream"];
    let mut table = TextTable::new(&head);
    for ClosedRuns { workload, side, runs } in closed {
        let all = |figure: fn(&GatewayRun) -> f64, digits| range(runs.iter().map(figure), digits);
        let proxy =
            if *side == ProxySide::Direct { String::new() } else { all(|run| run.proxy_cpu, 1) };
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
    let mut table = TextTable::new(&["half load of", "side", "K requests/s", "p50 ms", "p99 ms"]);
    for load in open {
        for (side, runs) in &load.runs {
            let all =
                |figure: fn(&GatewayRun) -> f64, digits| range(runs.iter().map(figure), digits);
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

fn print_goals(closed: &[ClosedRuns], open: &[HalfLoad]) {
    let mut goals = GatewayGoals(TextTable::new(&["", "figure", "goal", ""]));
    for gateway in ProxySide::GATEWAYS {
        for workload in [GatewayWorkload::Get, GatewayWorkload::UnKeyed] {
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

struct GatewayGoals(TextTable);

impl GatewayGoals {
    fn beside_nginx(
        &mut self,
        closed: &[ClosedRuns],
        workload: GatewayWorkload,
        gateway: ProxySide,
    ) {
        let runs = |side| find(closed, workload, side);
        let Some((ours, nginx)) = runs(gateway).zip(runs(ProxySide::Nginx)) else { return };
        let ratio = || pairs(ours, nginx, |our, nginx| 1e2 * nginx.proxy_cpu / our.proxy_cpu);
        let what =
            format!("{}, {}: requests per CPU second of nginx's", workload.name(), gateway.name());
        let met = middle(ratio()) >= OF_NGINX;
        self.judged(what, format!("{} %", range(ratio(), 0)), format!("≥ {OF_NGINX} %"), met);
    }

    /// A replay saves the call of the upstream. Its cost is compared with that of a request that is passed through, in
    /// gateway and upstream together. This upstream does nothing, so any other costs more.
    fn replay(&mut self, closed: &[ClosedRuns], gateway: ProxySide) {
        let runs = |workload| find(closed, workload, gateway);
        let Some((replay, passed)) =
            runs(GatewayWorkload::Replay).zip(runs(GatewayWorkload::UnKeyed))
        else {
            return;
        };
        let share = || {
            pairs(replay, passed, |replay, passed| 1e2 * replay.whole_cpu() / passed.whole_cpu())
        };
        let what = format!("replay, {}: CPU of passing the request on", gateway.name());
        let met = middle(share()) < REPLAY_OF_CALL;
        self.judged(what, format!("{} %", range(share(), 0)), format!("< {REPLAY_OF_CALL} %"), met);
        let Some(direct) = find(closed, GatewayWorkload::Replay, ProxySide::Direct) else { return };
        let alone =
            pairs(replay, direct, |replay, direct| 1e2 * replay.proxy_cpu / direct.upstream_cpu);
        let what = format!("replay, {}: CPU of this upstream alone", gateway.name());
        self.0.row([what, format!("{} %", range(alone, 0)), String::new(), String::new()]);
    }

    fn added(&mut self, load: &HalfLoad) {
        let direct = load.find(ProxySide::Direct).unwrap_or_default();
        for side in [ProxySide::Nginx, load.gateway] {
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

/// Pairs the values of two sides by repeat: other processes slow both down.
fn pairs(
    ours: &[GatewayRun],
    theirs: &[GatewayRun],
    figure: impl Fn(&GatewayRun, &GatewayRun) -> f64,
) -> impl Iterator<Item = f64> {
    ours.iter().zip(theirs).map(move |(our, their)| figure(our, their))
}
