//! The `semel` command.
#![allow(dead_code, unused_imports)] // Until `semel gateway` calls what is here.

mod demo;
mod gateway;
mod settings;
mod telemetry;

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
