//! What the stores on servers share, beside the protocol itself: batching, connections per runtime, URL parts.
//!
//! This crate is for the stores of semel and for stores like them. It decides nothing about a key.
//!
//! | | |
//! |---|---|
//! | requests of many callers in one round trip | [`batch`] |
//! | connections on the caller's runtime | [`RuntimeConnections`], [`RequestQueue`] |
//! | calls that outlive their caller | [`run_in_background`], [`run_to_completion`] |
//! | how long a batch may wait for its replies, and a connection for the server | [`RenewalPace`] |
//! | a timeout that tolerates a busy runtime | [`timeout_with_grace`] |
//! | parts of a URL | [`decoded`], [`host_and_port`] |
//! | maps by key hash or nonce | [`BuildPrefixHasher`] |
//! | errors about a value that is no record | [`wrong_record`], [`newer_format`], [`foreign_value`] |
//! | one record of a list | [`readable_record`] |
//! | `impl Store` on top of requests | [`impl_store_by_requests`] |

#[cfg(not(shuttle))]
mod background;
pub mod batch;
mod list;
mod prefix_hasher;
#[cfg(not(shuttle))]
mod renewal_pace;
#[cfg(not(shuttle))]
mod request_queue;
#[cfg(not(shuttle))]
mod runtime_connections;
mod store_macro;
mod url;
mod value_error;

#[cfg(not(shuttle))]
pub use background::{run_in_background, run_to_completion};
pub use list::readable_record;
pub use prefix_hasher::{BuildPrefixHasher, PrefixHasher};
#[cfg(not(shuttle))]
pub use renewal_pace::RenewalPace;
#[cfg(not(shuttle))]
pub use request_queue::{ConnectedWorker, RequestQueue, WorkerGroup};
#[cfg(not(shuttle))]
pub use runtime_connections::{RuntimeConnection, RuntimeConnections};
pub use semel_core::background::timeout_with_grace;
pub use url::{decoded, host_and_port};
pub use value_error::{foreign_value, newer_format, wrong_record};

/// For [`impl_store_by_requests`], whose users may not depend on `semel-core` by this name.
#[doc(hidden)]
pub use semel_core as __core;
