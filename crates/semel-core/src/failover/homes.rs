//! Which store granted what: the steps of an owner go there.

use std::{num::NonZeroUsize, time::Duration};

use lru::LruCache;

use crate::{Nonce, sync::Mutex};

/// Of more, the oldest are forgotten: both stores are asked then.
const AT_MOST: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Primary,
    Secondary {
        /// All nodes are to ask there for as long, from each step of the owner on.
        span: Duration,
    },
}

#[derive(Debug)]
pub(super) struct Homes(Mutex<LruCache<Nonce, Home>>);

impl Homes {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(AT_MOST)))
    }

    pub(super) fn remember(&self, nonce: Nonce, home: Home) {
        self.0.lock().put(nonce, home);
    }

    pub(super) fn of(&self, nonce: &Nonce) -> Option<Home> {
        self.0.lock().get(nonce).copied()
    }
}
