//! What the proxy saw, so that a test can tell that its fault took place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counted {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counted! {
    /// Connections that clients opened.
    accepted,
    /// Of these, reset at once.
    refused,
    /// Connections that were reset later.
    cut,
    /// Connections that are over, by whoever.
    ended,
    /// Pieces that went to the server.
    requests,
    /// Pieces that went to a client.
    replies,
    /// Pieces on their way to the server that were swallowed.
    lost_requests,
    /// Pieces on their way to a client that were swallowed.
    lost_replies,
}

impl Counts {
    /// Connections that are open.
    #[must_use]
    pub const fn open(&self) -> u64 {
        self.accepted.saturating_sub(self.ended)
    }
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
