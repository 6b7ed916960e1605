//! `cargo xtask bench gateway`: what a proxy takes of a request, beside the upstream asked directly
//! and beside nginx.

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

use self::options::Options;

#[derive(Parser)]
#[command(about = "An upstream, nginx and `semel gateway` before it, in turns")]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: Options,
}

/// What else this program is.
#[derive(Subcommand)]
enum Role {
    /// Be the upstream until standard input ends; the benchmark starts itself again with this.
    #[command(hide = true)]
    Upstream { answer: usize },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(Role::Upstream { answer }) = cli.role {
        return upstream::serve(answer);
    }
    cli.options.check()?;
    // One thread: the servers need the rest of the machine.
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Whichever ends first drops the other, and with it the servers.
        tokio::select! {
            done = compare(&cli.options) => done,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

async fn compare(options: &Options) -> Result<()> {
    options.announce();
    let closed = closed::run(options).await?;
    let open = open::run(options, &closed).await?;
    tables::print(&closed, &open);
    Ok(())
}
