#![doc = include_str!("README.md")]

mod cases;
mod client;
mod context;
mod expected_problem;
mod report;
pub mod routes;
mod run;
mod serve;
mod target;
mod upstream;

#[doc(hidden)]
pub use self::run::__run;
pub use self::{
    cases::{ALL, HttpCase},
    client::{ResponseStream, SentRequest, TestRequest, TestResponse},
    report::{HttpReport, http},
    serve::{TestServer, serve},
    target::{Ability, HttpTarget},
    upstream::{BrokenOff, HandlerRun, RunState, TestUpstream, TestUpstreamBody},
};
pub use crate::breakable::{Breakable, Switch};
