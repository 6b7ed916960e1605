//! The `semel` command.

mod demo;

use clap::Parser;

/// One effect per operation over at-least-once delivery.
#[derive(Parser)]
#[command(name = "semel", version)]
enum Command {
    /// Sends the same storm of retries at a bank, without semel and with it.
    Demo(demo::Options),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Demo(options) => demo::run(&options).await,
    }
}
