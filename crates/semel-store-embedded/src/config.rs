//! Settings of the store.

use std::{path::PathBuf, sync::Arc};

use semel_core::{Clock, Error, HashSecret, Result, SystemClock};
use semel_remote::batch::BatchLimits;

use crate::EmbeddedStore;

/// Settings of an [`EmbeddedStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct EmbeddedStoreBuilder {
    pub(crate) path: PathBuf,
    pub(crate) segment_bytes: u64,
    pub(crate) limits: BatchLimits,
    pub(crate) hash_secret: Option<HashSecret>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl EmbeddedStoreBuilder {
    /// The default length of a segment. Outcomes up to a quarter of it are kept whole.
    pub const SEGMENT_BYTES: u64 = 32 * 1024 * 1024;

    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            segment_bytes: Self::SEGMENT_BYTES,
            limits: BatchLimits::default(),
            hash_secret: None,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Sets the length of a segment. Longer segments take larger outcomes; shorter ones free disk space sooner.
    /// Existing segments keep their length.
    pub const fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets how many calls may wait for the disk, and how many may share one sync.
    pub const fn limits(mut self, limits: BatchLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the secret that keys are hashed with. The default is the folder's own secret. A folder is never opened with
    /// another secret than its first one, because no earlier key would be found.
    pub fn hash_secret(mut self, secret: HashSecret) -> Self {
        self.hash_secret = Some(secret);
        self
    }

    /// Sets the clock that leases and retention are judged by.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens the folder, or makes it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for a setting out of range, a folder
    /// that another process has open, that holds foreign files or that began with another hash
    /// secret;
    /// [`ErrorKind::Corrupt`](semel_core::ErrorKind::Corrupt) when what was acknowledged is damaged;
    /// [`ErrorKind::Full`](semel_core::ErrorKind::Full) and
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when the disk refuses.
    pub fn open(self) -> Result<EmbeddedStore> {
        const SANE: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;
        if !SANE.contains(&self.segment_bytes) {
            return Err(Error::invalid("segment_bytes must be between 1 MiB and 1 GiB"));
        }
        if self.limits.batch == 0 || self.limits.queued == 0 {
            return Err(Error::invalid("limits must be at least 1"));
        }
        EmbeddedStore::from_config(self)
    }
}
