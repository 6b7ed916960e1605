//! What a worker is told to do.

use std::{path::PathBuf, process::Command, time::Duration};

use clap::Args;

use super::kill_points::StopAt;

/// What a worker is told to do; these are its arguments.
#[derive(Args, Clone, Debug)]
pub struct Job {
    /// The store, such as `memory:`.
    #[arg(long)]
    pub store: String,
    /// Keeps the keys of this run apart from those of others in a shared store.
    #[arg(long)]
    pub namespace: String,
    /// The ledger's socket.
    #[arg(long)]
    pub ledger: PathBuf,
    /// The number of this process in the run.
    #[arg(long)]
    pub process: u32,
    /// Where its dice start.
    #[arg(long)]
    pub seed: u64,
    /// The first key it uses.
    #[arg(long)]
    pub first_key: u32,
    /// How many keys from there on.
    #[arg(long)]
    pub keys: u32,
    /// Callers at the same time.
    #[arg(long)]
    pub clients: u32,
    /// Engines over the one store, so that owners meet strangers.
    #[arg(long)]
    pub engines: u32,
    /// How long an owner may stay silent, in milliseconds.
    #[arg(long)]
    pub lease_ms: u64,
    /// Stop after so many calls.
    #[arg(long)]
    pub calls: Option<u64>,
    /// Stand still at a point, at its nth passing: `after-effect:3`.
    #[arg(long)]
    pub stop_at: Option<StopAt>,
    /// Bring every key to its end; after the load, where [`Job::calls`] sets an end to that.
    #[arg(long)]
    pub settle: bool,
    /// Show every record in the history at the end, for a store that ends with this process.
    #[arg(long)]
    pub dump: bool,
}

impl Job {
    pub(super) const fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Adds the job to a command line.
    pub fn arguments(&self, command: &mut Command) {
        let mut add = |name: &str, value: String| {
            command.arg(format!("--{name}={value}"));
        };
        add("store", self.store.clone());
        add("namespace", self.namespace.clone());
        add("ledger", self.ledger.display().to_string());
        add("process", self.process.to_string());
        add("seed", self.seed.to_string());
        add("first-key", self.first_key.to_string());
        add("keys", self.keys.to_string());
        add("clients", self.clients.to_string());
        add("engines", self.engines.to_string());
        add("lease-ms", self.lease_ms.to_string());
        if let Some(calls) = self.calls {
            add("calls", calls.to_string());
        }
        if let Some(stop_at) = &self.stop_at {
            add("stop-at", stop_at.to_string());
        }
        if self.settle {
            command.arg("--settle");
        }
        if self.dump {
            command.arg("--dump");
        }
    }
}
