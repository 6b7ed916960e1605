//! The crash harness: real processes under load, killed with SIGKILL, and a checker that knows what
//! must still be true afterwards.
//!
//! | | |
//! |---|---|
//! | [`storm`] | kills and restarts workers as a [`Plan`] says, settles, dumps, checks: a [`Report`] |
//! | [`World`] | the same pieces one by one, for a test that kills at a named point |
//! | [`Process`] | starts, stops, kills and reaps one process |
//! | [`ledger`] | who ran and what took effect, in a process and a file of their own |
//! | [`inbox`] | a storm of its own: one effect and one record for every event |
//! | [`check`] | the invariants, over history, ledger and the final dump |
//!
//! `docs/PROOF.md` says how to run it and how to read a failure.

mod chaos;
pub mod check;
mod clock;
mod event;
mod history;
pub mod inbox;
mod key;
pub mod ledger;
pub mod load;
pub mod plain_store;
mod process;
pub mod stores;

pub use chaos::{Plan, Report, Worker, World, storm};
pub use clock::mono;
pub use event::{Answer, Detail, Event, Hex, Kind, Op};
pub use history::History;
pub use key::{Class, KeyId};
pub use process::{Process, die_with_parent};
