//! What a URL leaves open.

use semel_core::HashSecret;

use super::StoreUrl;

/// What a [`StoreUrl`](crate::StoreUrl) leaves open. The default is right for most.
///
/// ```
/// use semel::StoreOptions;
///
/// let options = StoreOptions { cache: Some(100_000), ..StoreOptions::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Keys all hashes. All processes on a shared store have the same one, or none: who disagrees with
    /// the first of them is refused. Left out, a folder uses its own.
    pub hash_secret: Option<HashSecret>,
    /// Outcomes kept in this process, so that their replays ask no server. Left out: none.
    pub cache: Option<usize>,
    /// Makes or updates the tables of a PostgreSQL store when it is opened.
    pub migrate: bool,
    /// Opens a shared store without settling its hash secret where no process has yet: for who looks and
    /// claims nothing. The first process that serves decides.
    pub look_only: bool,
    /// Connections to the server. Left out: the store's own default.
    pub connections: Option<usize>,
    /// Seals outcomes and labels before the store sees them. Left out: they are kept in the clear.
    #[cfg(feature = "sealed")]
    pub seal: Option<super::SealOptions>,
    /// A Redis that replays what a PostgreSQL store decided (see [`Arbiter`](semel_core::Arbiter)).
    pub front: Option<StoreUrl>,
    /// A PostgreSQL that serves while a Redis store is unreachable (see [`Failover`](semel_core::Failover)). Work
    /// may run twice then, which has to be allowed.
    pub failover: Option<StoreUrl>,
    /// Allows what `failover` costs.
    pub allow_duplicate_execution_on_failover: bool,
}
