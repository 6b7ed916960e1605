//! The program `semel-crash`: chaos runs, and the processes that they start.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use clap::Parser;
use semel_crash::{
    ChaosPlan, chaos_run,
    check::{Evidence, Floor, check},
    consumer::{self, BrokerKind},
    die_with_parent, inbox, ledger, load,
    stall::{StallKind, StallPlan, StalledStore, stall_run},
    stores,
};

#[derive(Parser)]
enum Program {
    /// Runs engines under load until the process is killed.
    Worker(load::WorkerJob),
    /// Writes runs and effects to a file until the process is killed.
    Ledger {
        /// The socket to listen on.
        #[arg(long)]
        socket: PathBuf,
        /// The file to write to.
        #[arg(long)]
        file: PathBuf,
    },
    /// Prints every record of a store.
    Dump {
        /// The store.
        #[arg(long)]
        store: String,
        /// The namespace.
        #[arg(long)]
        namespace: String,
        /// The number of keys of the run.
        #[arg(long)]
        keys: u32,
    },
    /// Handles events with an inbox until the process is killed.
    InboxWorker(inbox::InboxJob),
    /// Handles events of a message broker until the process is killed.
    ConsumerWorker(consumer::ConsumerJob),
    /// Checks the evidence of a failed chaos run again.
    Check {
        /// The folder that the report names.
        folder: PathBuf,
        /// The store of the run.
        store: String,
    },
    /// Stalls the server of a store for longer than a lease, and checks that no work of a living owner runs twice.
    Stall {
        /// `postgres`, `redis`, `valkey`, `nats`, `nats-cluster` or `arbiter`.
        store: StalledStore,
        /// `freeze`, `cut` or `restart`.
        #[arg(long, default_value = "freeze")]
        kind: StallKind,
        /// How long the server stalls, in milliseconds.
        #[arg(long, default_value_t = 4500)]
        stall_ms: u64,
        /// The lease, in milliseconds.
        #[arg(long, default_value_t = 2000)]
        lease_ms: u64,
        /// How often the server stalls.
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// The keys of each round.
        #[arg(long, default_value_t = 60)]
        keys: u32,
    },
    /// Kills workers over a store and checks the history, the ledger and the final records.
    #[command(alias = "storm")]
    Chaos {
        /// `memory`, `embedded`, `plain`, `postgres`, `redis`, `valkey`, `nats`,
        /// `arbiter`, `inbox`, `consumer`, `consumer-kafka`, or one such as `plain:{dir}/store`.
        store: String,
        /// The number of workers to kill.
        #[arg(long, default_value_t = 2000)]
        kills: u32,
        /// The number of faults to inject into the server, for stores whose server the run starts itself.
        #[arg(long, alias = "blows", default_value_t = 200)]
        faults: u32,
        /// The seed of an earlier run, to repeat its random choices.
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> ExitCode {
    let result = match Program::parse() {
        Program::Worker(job) => load::work(job).map(|()| true),
        Program::Ledger { socket, file } => {
            die_with_parent().and_then(|()| ledger::serve(&socket, &file)).map(|()| true)
        }
        Program::Dump { store, namespace, keys } => {
            load::dump(&store, &namespace, keys).map(|()| true)
        }
        Program::InboxWorker(job) => inbox::work(job).map(|()| true),
        Program::ConsumerWorker(job) => consumer::work(&job).map(|()| true),
        Program::Check { folder, store } => check_again(&folder, &store),
        Program::Stall { store, kind, stall_ms, lease_ms, rounds, keys } => {
            let [stall, lease] = [stall_ms, lease_ms].map(Duration::from_millis);
            run_stalls(&StallPlan { store, kind, stall, lease, rounds, keys })
        }
        Program::Chaos { store, kills, seed, .. } if store == "inbox" => run_inbox(kills, seed),
        Program::Chaos { store, kills, seed, .. } if store == "consumer" => {
            run_consumer(BrokerKind::Nats, kills, seed)
        }
        Program::Chaos { store, kills, seed, .. } if store == "consumer-kafka" => {
            run_consumer(BrokerKind::Kafka, kills, seed)
        }
        Program::Chaos { store, kills, faults, seed } => run_chaos(&store, kills, faults, seed),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_chaos(store: &str, kills: u32, faults: u32, seed: Option<u64>) -> Result<bool> {
    let mut plan = ChaosPlan::new(std::env::current_exe()?, spec(store)).kills(kills);
    if plan.has_server() {
        plan = plan.faults(faults);
    }
    if let Some(seed) = seed {
        plan = plan.seed(seed);
    }
    println!("chaos run over {}: {kills} kills, seed {}", plan.store, plan.seed);
    let report = chaos_run(&plan)?;
    println!("{report}");
    Ok(report.passed())
}

fn run_stalls(plan: &StallPlan) -> Result<bool> {
    let report = stall_run(plan)?;
    println!("{report}");
    Ok(report.passed())
}

fn run_inbox(kills: u32, seed: Option<u64>) -> Result<bool> {
    let mut plan = inbox::InboxPlan::new(std::env::current_exe()?, kills);
    plan.seed = seed.unwrap_or(plan.seed);
    println!("chaos run over the inbox: {kills} kills, seed {}", plan.seed);
    let report = inbox::chaos_run(&plan)?;
    println!("{report}");
    Ok(report.passed())
}

fn run_consumer(broker: BrokerKind, kills: u32, seed: Option<u64>) -> Result<bool> {
    let mut plan = consumer::ConsumerChaosPlan::new(std::env::current_exe()?, broker, kills);
    plan.seed = seed.unwrap_or(plan.seed);
    println!("chaos run over consumers of {broker:?}: {kills} kills, seed {}", plan.seed);
    let report = consumer::chaos_run(&plan)?;
    println!("{report}");
    Ok(report.passed())
}

fn check_again(folder: &Path, store: &str) -> Result<bool> {
    let rules = stores::rules_of(spec(store), Floor::default());
    let findings = check(&Evidence::read(folder, rules)?);
    println!("{}", findings.counts);
    findings.violations.iter().for_each(|violation| println!("\n{violation}"));
    Ok(findings.violations.is_empty())
}

/// The store behind a short name.
fn spec(store: &str) -> &str {
    match store {
        "memory" => "memory:",
        "plain" => "plain:{dir}/store",
        "careless" => "careless:{dir}/store",
        "embedded" => "file:{dir}/store",
        "postgres" => "postgres:",
        "redis" => "redis:",
        "valkey" => "valkey:",
        "nats" => "nats:",
        "nats-cluster" => "nats-cluster:",
        "arbiter" => "arbiter:",
        "forgetful" => "forgetful:",
        other => other,
    }
}
