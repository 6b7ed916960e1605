//! A TCP proxy between a store and its server that goes wrong on demand.
//!
//! It knows nothing of protocols. What it swallowed it never makes up for: a connection that lost bytes
//! carries nothing any more and is cut when the fault ends, as half a conversation would be read as
//! another one.
//!
//! ```no_run
//! use semel_faults::{Fault, Proxy};
//!
//! let proxy = Proxy::start(6379)?;
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

pub use counts::Counts;
pub use fault::Fault;
pub use proxy::Proxy;
