//! A model checker over the real steps of semel's protocol.
//!
//! Three workers, an operator and a clock act on one key in every possible order. Each step of the store is the
//! function of [`semel_core::steps`] that real stores run; nothing of the protocol is written a second time.
//!
//! | file | what is in it |
//! |---|---|
//! | `config`, `configs` | which workers take part and which faults may happen |
//! | `world` | one state: the record, the workers, late messages, what the operator read |
//! | `action` | the actions that are possible in a state |
//! | `apply` | what an action does to a state |
//! | `ledger` | the true history of the key, from requests and replies, never from the record |
//! | `judge` | compares each reply with the ledger |
//! | `inspect` | compares each state with the ledger, and checks for progress |
//! | `rule`, `situation` | what must never happen, and what must happen somewhere |
//! | `stall` | a model of its own: a store that does not answer for a while |
//! | `check`, `counterexample` | runs the checker and prints the shortest counterexample |

mod action;
mod apply;
mod check;
mod config;
mod configs;
mod counterexample;
mod inspect;
mod judge;
mod ledger;
mod protocol;
mod reply_coverage;
mod request;
mod rule;
mod situation;
mod stall;
mod world;

pub use check::ModelReport;
pub use config::{FaultLimits, ModelClient, ModelConfig};
pub use protocol::Protocol;
pub use reply_coverage::ReplyCoverage;
pub use rule::ProtocolRule;
pub use situation::Situation;
pub use stall::{StallAction, StallCheck, StallConfig, StallMessage};
