#![doc = include_str!("README.md")]

mod breakable;
mod cases;
mod client;
mod door;
mod refusal;
mod report;
pub mod routes;
mod run;
mod scene;
mod serve;
mod upstream;

#[doc(hidden)]
pub use self::run::__run;
pub use self::{
    breakable::{Breakable, Switch},
    cases::{ALL, Case},
    client::{Answer, Ask, Reply, Started},
    door::{Ability, Door},
    report::{Report, http},
    serve::{Served, serve},
    upstream::{BrokenOff, Fate, Run, Upstream, UpstreamBody},
};
