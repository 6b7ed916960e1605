//! A TCP proxy between a store and its server that injects faults on demand.
//!
//! It does not parse the protocol. Dropped bytes are never sent later: a connection that lost bytes carries nothing
//! any more and is reset when the fault ends, because the rest of its bytes would be misread.
//!
//! ```no_run
//! use semel_faults::{Fault, FaultProxy};
//!
//! let proxy = FaultProxy::start(6379)?;
//! let url = format!("redis://127.0.0.1:{}/", proxy.port());
//! proxy.set(Fault::BlackHole);
//! // calls time out
//! proxy.set(Fault::None);
//! # Ok::<(), std::io::Error>(())
//! ```

mod connection;
mod counts;
mod fault;
mod proxy;

pub use counts::ProxyCounts;
pub use fault::Fault;
pub use proxy::FaultProxy;
