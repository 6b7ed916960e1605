#![doc = include_str!("../README.md")]

#[cfg(any(feature = "http", feature = "sources"))]
mod breakable;
mod concurrent;
pub mod fixture;
#[cfg(feature = "http")]
pub mod http;
mod machine;
mod operation;
mod parallel;
pub mod promises;
mod run;
#[cfg(feature = "sources")]
pub mod sources;
mod time;

#[cfg(feature = "http")]
pub use self::http::http;
#[cfg(any(feature = "http", feature = "sources"))]
pub use breakable::{Breakable, Switch};
pub use concurrent::{state_machines, store_at_once};
pub use machine::{Subject, state_machine};
pub use promises::{ALL, Promise, store};
#[doc(hidden)]
pub use run::__run;
pub use time::{LEASE, RETENTION, RealTime, Time};
