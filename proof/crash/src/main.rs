//! The programs of the crash harness: what it starts, and the storm itself.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::Parser;
use semel_crash::{
    Plan,
    check::{Evidence, Floor, check},
    die_with_parent, inbox, ledger, load, stores, storm,
};

#[derive(Parser)]
enum Program {
    /// An engine under load, until it is killed.
    Worker(load::Job),
    /// Writes down effects, until it is killed.
    Ledger {
        /// Where to listen.
        #[arg(long)]
        socket: PathBuf,
        /// Where to write.
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
        /// How many keys the run had.
        #[arg(long)]
        keys: u32,
    },
    /// Handles events in an inbox, until it is killed.
    InboxWorker(inbox::Job),
    /// Checks again what a failed storm has left.
    Check {
        /// The folder that its report names.
        folder: PathBuf,
        /// The store it was over.
        store: String,
    },
    /// Kills workers over a store and checks what is left.
    Storm {
        /// `memory`, `embedded`, `plain`, `postgres`, `redis`, `valkey`, `nats`,
        /// `arbiter`, `inbox`, or one such as `plain:{dir}/store`.
        store: String,
        /// How many kills.
        #[arg(long, default_value_t = 2000)]
        kills: u32,
        /// How many blows to the server, where the storm has one of its own.
        #[arg(long, default_value_t = 200)]
        blows: u32,
        /// Repeats the dice of an earlier storm.
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> ExitCode {
    let ended = match Program::parse() {
        Program::Worker(job) => load::work(job).map(|()| true),
        Program::Ledger { socket, file } => {
            die_with_parent().and_then(|()| ledger::serve(&socket, &file)).map(|()| true)
        }
        Program::Dump { store, namespace, keys } => {
            load::dump(&store, &namespace, keys).map(|()| true)
        }
        Program::InboxWorker(job) => inbox::work(job).map(|()| true),
        Program::Check { folder, store } => check_again(&folder, &store),
        Program::Storm { store, kills, seed, .. } if store == "inbox" => run_inbox(kills, seed),
        Program::Storm { store, kills, blows, seed } => run_storm(&store, kills, blows, seed),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_storm(store: &str, kills: u32, blows: u32, seed: Option<u64>) -> Result<bool> {
    let mut plan = Plan::new(std::env::current_exe()?, spec(store)).kills(kills);
    if plan.has_server() {
        plan = plan.blows(blows);
    }
    if let Some(seed) = seed {
        plan = plan.seed(seed);
    }
    println!("storm over {}: {kills} kills, seed {}", plan.store, plan.seed);
    let report = storm(&plan)?;
    println!("{report}");
    Ok(report.passed())
}

fn run_inbox(kills: u32, seed: Option<u64>) -> Result<bool> {
    let mut plan = inbox::Plan::new(std::env::current_exe()?, kills);
    plan.seed = seed.unwrap_or(plan.seed);
    println!("storm over the inbox: {kills} kills, seed {}", plan.seed);
    let report = inbox::storm(&plan)?;
    println!("{report}");
    Ok(report.is_right())
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
