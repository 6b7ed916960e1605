#![doc = include_str!("../README.md")]

mod concurrent;
pub mod fixture;
#[cfg(feature = "http")]
pub mod http;
mod machine;
mod operation;
mod parallel;
pub mod promises;
mod run;
mod time;

#[cfg(feature = "http")]
pub use self::http::http;
pub use concurrent::{state_machines, store_at_once};
pub use machine::{Subject, state_machine};
pub use promises::{ALL, Promise, store};
#[doc(hidden)]
pub use run::__run;
pub use time::{LEASE, RETENTION, RealTime, Time};
