//! The demo: what a retry storm does to a bank account.
//!
//! Every order is sent several times at once, as impatient clients do, and the bank's replies get
//! lost. The bank honours an idempotency key if it is given one.

mod bank;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use futures_util::future::join_all;
use semel::{
    Context, Engine, Fingerprint, MemoryStore, Policy, Principal, RunError, Scope, WorkError,
};

use self::bank::Bank;

/// How big the storm is.
#[derive(Args)]
pub(crate) struct Options {
    /// Orders to charge.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    orders: u32,
    /// Copies of each order that arrive at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: u32,
    /// Replies of the bank that get lost, in percent.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=90))]
    lost_replies: u32,
}

/// What one pass came to.
struct Tally {
    charges: usize,
    overcharged: usize,
    answered: usize,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    println!(
        "{} orders, each sent {} times at once; {} % of the bank's replies are lost.\n",
        options.orders, options.copies, options.lost_replies
    );
    println!("{:<16}{:>10}{:>22}{:>16}", "", "charges", "customers overcharged", "sends answered");
    show("without semel", &without(options).await, options);
    show("with semel", &with(options).await?, options);
    println!("\nWith semel every copy of an order gets the one receipt that was recorded for it.");
    Ok(())
}

fn show(name: &str, tally: &Tally, options: &Options) {
    let sends = options.orders * options.copies;
    let answered = format!("{}/{sends}", tally.answered);
    println!("{name:<16}{:>10}{:>22}{answered:>16}", tally.charges, tally.overcharged);
}

/// Clients retry until the bank answers.
async fn without(options: &Options) -> Tally {
    let bank = Bank::new(options.lost_replies);
    let sends = sends(options).map(|order| {
        let bank = bank.clone();
        async move { while bank.charge(order, None).await.is_err() {} }
    });
    let answered = join_all(sends).await.len();
    bank.tally(answered)
}

/// The same, through an engine: the work is keyed by the order, and the key is passed on.
async fn with(options: &Options) -> Result<Tally> {
    let bank = Bank::new(options.lost_replies);
    let policy = Policy::financial().backoff(Duration::ZERO);
    let engine = Engine::builder().store(MemoryStore::new()).policy(policy).build()?;
    let scope = Scope::new("shop", Principal::from("checkout"), "charge");
    let sends = sends(options).map(|order| send(&engine, &scope, &bank, order));
    let answered = join_all(sends).await.into_iter().filter(Result::is_ok).count();
    Ok(bank.tally(answered))
}

async fn send(engine: &Engine, scope: &Scope, bank: &Bank, order: u32) -> Result<String> {
    let asked = Fingerprint::of(&("charge", order))?;
    loop {
        let bank = bank.clone();
        let work = move |context: Context| async move {
            let receipt = bank.charge(order, Some(context.downstream_key())).await;
            receipt.map_err(WorkError::from)
        };
        match engine.run(scope.key(order.to_string())?, asked, work).await {
            Ok(answer) => return Ok(answer.value),
            Err(RunError::Retry(_) | RunError::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn sends(options: &Options) -> impl Iterator<Item = u32> {
    (0..options.orders * options.copies).map(|send| send % options.orders)
}
