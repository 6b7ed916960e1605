//! Puts the sealing layer around a store.

use std::sync::Arc;

use semel_core::Store;
use semel_sealed::{KeyRing, Sealed};

/// The options of the sealing layer.
///
/// ```
/// use semel::{KeyRing, SealKey, SealKeys, SealOptions, StoreOptions};
///
/// let keys = SealKeys::parse(&SealKey::random("2026-11")?.line())?;
/// let seal = Some(SealOptions::with(KeyRing::new(keys)));
/// let options = StoreOptions { seal, ..StoreOptions::default() };
/// # drop(options);
/// # Ok::<_, semel::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SealOptions {
    /// The keys, which may be rotated while the process runs.
    pub ring: KeyRing,
    /// Also reads records that are not sealed, until those from before sealing have expired.
    pub accept_unsealed: bool,
}

impl SealOptions {
    /// Seals with these keys, and refuses records that are not sealed.
    #[must_use]
    pub const fn with(ring: KeyRing) -> Self {
        Self { ring, accept_unsealed: false }
    }
}

pub(super) fn sealed(store: Arc<dyn Store>, seal: Option<&SealOptions>) -> Arc<dyn Store> {
    let Some(SealOptions { ring, accept_unsealed }) = seal else { return store };
    Arc::new(Sealed::new(store, ring.clone()).accept_unsealed(*accept_unsealed))
}
