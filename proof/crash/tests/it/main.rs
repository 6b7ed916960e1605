//! Tests of the crash harness, and chaos runs of every store with it.
//!
//! Each module can be run alone: `cargo test -p semel-crash --test it MODULE::`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chaos_runs;
mod checker;
mod consumer;
mod embedded;
mod inbox;
mod kill_points;
mod processes;
mod servers;
mod stalls;

/// The program that the harness starts as worker, ledger and dump.
const PROGRAM: &str = env!("CARGO_BIN_EXE_semel-crash");
