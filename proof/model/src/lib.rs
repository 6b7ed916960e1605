//! A model checker over the real steps of semel's protocol.
//!
//! Three workers, an operator and a clock act on one key in every possible order. Each store step is the
//! function of [`semel_core::steps`] that real stores run; nothing of the protocol is written a second time.
//!
//! | file | what is in it |
//! |---|---|
//! | `config`, `configs` | who takes part and what may go wrong |
//! | `world` | one state: the record, the workers, messages on their way, the operator's desk |
//! | `action` | what can happen next |
//! | `play` | what it does |
//! | `ledger` | the truth, kept from what was asked and answered, never read from the record |
//! | `judge` | each answer beside the ledger |
//! | `inspect` | each state beside the ledger; can everybody go on? |
//! | `rule`, `sight` | what must never, and what must somewhere, be the case |
//! | `check` | runs the checker and tells a counterexample as a story |

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
mod world;

pub use check::Report;
pub use config::{Client, Config, Limits};
pub use protocol::Protocol;
pub use reply_coverage::Heard;
pub use rule::Rule;
pub use situation::Sight;
