//! The options of a store that are not in its URL.

use semel_core::HashSecret;

use super::StoreUrl;

/// The options of a store that are not in its [`StoreUrl`](crate::StoreUrl). The defaults fit most services.
///
/// ```
/// use semel::StoreOptions;
///
/// let options = StoreOptions { cache: Some(100_000), ..StoreOptions::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The secret of all hashes. All processes on a shared store must have the same secret, or none: a process whose
    /// secret differs from that of the first one is refused. By default, a folder uses a secret of its own.
    pub hash_secret: Option<HashSecret>,
    /// The number of outcomes in the cache of this process. Their replays need no server. Default: no cache.
    pub cache: Option<usize>,
    /// Makes or updates the tables of a PostgreSQL store when it is opened.
    pub migrate: bool,
    /// Opens a shared store without setting it up: a missing bucket is not made, and the hash secret is not written if
    /// no process has written it. For a process that claims no keys, such as an operator's command.
    pub skip_setup: bool,
    /// Connections to the server. The default depends on the store.
    pub connections: Option<usize>,
    /// Seals outcomes and labels before the store gets them. By default they are stored in the clear.
    #[cfg(feature = "sealed")]
    pub seal: Option<super::SealOptions>,
    /// A Redis that replays copies of a PostgreSQL store's outcomes (see [`Arbiter`](semel_core::Arbiter)).
    pub front: Option<StoreUrl>,
    /// A PostgreSQL that serves while a Redis store is unreachable (see [`Failover`](semel_core::Failover)). Work
    /// may run twice then, which has to be allowed.
    pub failover: Option<StoreUrl>,
    /// Allows that work runs twice, which `failover` needs.
    pub allow_duplicate_execution_on_failover: bool,
}
