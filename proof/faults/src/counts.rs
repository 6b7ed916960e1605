//! Counts what the proxy did, so that a test can check that its fault took place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counted {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start of the proxy.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ProxyCounts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct ProxyCounters { $(pub(crate) $name: AtomicU64,)* }

        impl ProxyCounters {
            pub(crate) fn read(&self) -> ProxyCounts {
                ProxyCounts { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counted! {
    /// Connections that clients opened.
    accepted,
    /// Connections that were reset at once.
    refused,
    /// Connections that were reset later.
    cut,
    /// Connections that have ended, for any reason.
    ended,
    /// Pieces that were passed on to the server.
    requests,
    /// Pieces that were passed on to a client.
    replies,
    /// Pieces for the server that were dropped.
    lost_requests,
    /// Pieces for a client that were dropped.
    lost_replies,
}

impl ProxyCounts {
    /// Connections that are open.
    #[must_use]
    pub const fn open(&self) -> u64 {
        self.accepted.saturating_sub(self.ended)
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
