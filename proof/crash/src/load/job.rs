//! The arguments of a worker process.

use std::{path::PathBuf, process::Command, time::Duration};

use clap::Args;

use super::kill_points::StopAt;

/// The arguments of a worker process.
#[derive(Args, Clone, Debug)]
pub struct WorkerJob {
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
    /// The seed of its random numbers.
    #[arg(long)]
    pub seed: u64,
    /// The first key it uses.
    #[arg(long)]
    pub first_key: u32,
    /// How many keys from there on.
    #[arg(long)]
    pub keys: u32,
    /// Concurrent clients.
    #[arg(long)]
    pub clients: u32,
    /// Engines over the one store. With two, claims of one process compete without singleflight.
    #[arg(long)]
    pub engines: u32,
    /// The lease, in milliseconds.
    #[arg(long)]
    pub lease_ms: u64,
    /// The load ends after this many calls.
    #[arg(long)]
    pub calls: Option<u64>,
    /// Stop (SIGSTOP) when a kill point is reached the nth time: `after-effect:3`.
    #[arg(long)]
    pub stop_at: Option<StopAt>,
    /// Call every key until it has a final state. With [`WorkerJob::calls`], after the load.
    #[arg(long)]
    pub drain: bool,
    /// Write every record to the history at the end, for a store that lives in this process only.
    #[arg(long)]
    pub dump: bool,
}

impl WorkerJob {
    pub(super) const fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Adds the arguments to a command.
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
        if self.drain {
            command.arg("--drain");
        }
        if self.dump {
            command.arg("--dump");
        }
    }
}
