//! The demo: what a retry storm does to a bank account.
//!
//! Every order is sent several times at once, as impatient clients do, and some of the bank's replies
//! get lost: the charge is done, and nobody knows.

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

/// What the bank does with the key it is given.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Ignored,
    Honoured,
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
    println!("{:<28}{:>8}{:>23}{:>16}", "", "charges", "customers overcharged", "sends answered");
    show("without semel", &without(options).await, options);
    show("with semel", &with(options, Keys::Ignored).await?, options);
    show("with semel, bank takes key", &with(options, Keys::Honoured).await?, options);
    println!(
        "\nsemel runs each order once and gives every copy the one receipt. A charge whose reply was \
         lost\nis tried again: that is single only if the bank takes the downstream key."
    );
    Ok(())
}

fn show(name: &str, tally: &Tally, options: &Options) {
    let sends = options.orders * options.copies;
    let answered = format!("{}/{sends}", tally.answered);
    println!("{name:<28}{:>8}{:>23}{answered:>16}", tally.charges, tally.overcharged);
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

/// The same, through an engine: the work is keyed by the order, and a key is passed on.
async fn with(options: &Options, keys: Keys) -> Result<Tally> {
    let bank = Bank::new(options.lost_replies);
    let policy = Policy::financial().backoff(Duration::ZERO);
    let engine = Engine::builder().store(MemoryStore::new()).policy(policy).build()?;
    let scope = Scope::new("shop", Principal::from("checkout"), "charge");
    let sends = sends(options).map(|order| send(&engine, &scope, &bank, keys, order));
    let answered = join_all(sends).await.into_iter().filter(Result::is_ok).count();
    Ok(bank.tally(answered))
}

async fn send(
    engine: &Engine,
    scope: &Scope,
    bank: &Bank,
    keys: Keys,
    order: u32,
) -> Result<String> {
    let asked = Fingerprint::of(&("charge", order))?;
    loop {
        let bank = bank.clone();
        let work = move |context: Context| async move {
            let key = (keys == Keys::Honoured).then(|| context.downstream_key());
            bank.charge(order, key).await.map_err(WorkError::from)
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
