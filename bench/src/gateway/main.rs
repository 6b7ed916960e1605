//! `cargo xtask bench gateway`: the cost of the gateway per request, compared with direct requests to the upstream and
//! with nginx.

mod bench;
mod closed;
mod disk;
mod open;
mod options;
mod order;
mod server;
mod side;
mod table;
mod tables;
mod upstream;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

use self::options::GatewayBenchOptions;

#[derive(Parser)]
#[command(
    about = "Compares an upstream without a proxy, behind nginx, and behind `semel gateway`, in turns"
)]
struct GatewayCli {
    #[command(subcommand)]
    role: Option<GatewayRole>,
    #[command(flatten)]
    options: GatewayBenchOptions,
}

/// The other role of this program.
#[derive(Subcommand)]
enum GatewayRole {
    /// Run as the upstream until standard input ends. The benchmark starts itself again with this.
    #[command(hide = true)]
    Upstream { answer: usize },
}

fn main() -> Result<()> {
    let cli = GatewayCli::parse();
    if let Some(GatewayRole::Upstream { answer }) = cli.role {
        return upstream::serve(answer);
    }
    cli.options.check()?;
    // One thread: the servers need the rest of the machine.
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // A signal drops the comparison, and with it the servers.
        tokio::select! {
            done = compare(&cli.options) => done,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

async fn compare(options: &GatewayBenchOptions) -> Result<()> {
    options.announce();
    let closed = closed::run(options).await?;
    let open = open::run(options, &closed).await?;
    tables::print(&closed, &open);
    Ok(())
}
