//! The crash harness: real processes under load are killed with SIGKILL, and a checker compares what they
//! left with the invariants of semel.
//!
//! | | |
//! |---|---|
//! | [`chaos_run`] | kills and restarts workers as a [`ChaosPlan`] says, then checks the evidence: a [`ChaosReport`] |
//! | [`Harness`] | the parts of a chaos run one by one, for a test that kills at a named point |
//! | [`ChildProcess`] | starts, stops, kills and reaps one process |
//! | [`ledger`] | a process that writes every run and every effect to a file |
//! | [`inbox`] | the chaos run of the inbox: one effect and one record for every event |
//! | [`consumer`] | the chaos run of consumers: one outcome for every event, and no run without a reason |
//! | [`stall`] | a server that does not answer for longer than a lease, while owners are alive |
//! | [`check`] | the invariants, checked over history, ledger and final dump |
//!
//! `docs/PROOF.md` says how to run it and how to read a failure.

mod chaos;
pub mod check;
mod clock;
pub mod consumer;
mod event;
mod history;
pub mod inbox;
mod key;
pub mod ledger;
pub mod load;
pub mod plain_store;
mod process;
pub mod stall;
pub mod stores;

pub use chaos::{ChaosPlan, ChaosReport, Harness, RunningWorker, chaos_run};
pub use clock::mono;
pub use event::{Detail, Event, EventKind, Hex, Op, ReplyKind};
pub use history::History;
pub use key::{KeyClass, KeyId};
pub use process::{ChildProcess, die_with_parent};
