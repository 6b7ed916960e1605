//! Promises of a whole consumer on the source under test, one function each, and the processes that they run in.

pub(super) mod chaos;
pub(super) mod crashes;
pub(super) mod failures;
mod handler;
mod journal;
pub(super) mod order;
pub(super) mod outages;
mod process;
pub(super) mod runs;
mod watched;
mod watched_store;
mod world;

use self::{
    handler::Run,
    journal::{Entry, Journal, Step},
    process::Process,
    world::World,
};
