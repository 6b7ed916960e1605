//! Which store granted what: the steps of an owner go there, and what the primary grants late is given back.

use std::{num::NonZeroUsize, time::Duration};

use lru::LruCache;

use crate::{Nonce, Owner, sync::Mutex};

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

/// What is known of a claim, by its nonce.
#[derive(Clone, Copy, Debug)]
enum Known {
    At(Home),
    /// The primary did not answer in time.
    Unheard,
    /// The primary granted it when nobody waited any more. Who asks again, by the same nonce, may have it.
    Late(Owner),
    /// The secondary said no to it after that.
    Refused,
}

#[derive(Debug)]
pub(super) struct Homes(Mutex<LruCache<Nonce, Known>>);

impl Homes {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(AT_MOST)))
    }

    pub(super) fn of(&self, nonce: &Nonce) -> Option<Home> {
        match self.0.lock().get(nonce) {
            Some(Known::At(home)) => Some(*home),
            Some(Known::Unheard | Known::Late(_) | Known::Refused) | None => None,
        }
    }

    /// It was granted there. Says what the primary has to be given back.
    pub(super) fn granted(&self, nonce: Nonce, home: Home) -> Option<Owner> {
        match (self.0.lock().put(nonce, Known::At(home)), home) {
            (Some(Known::Late(owner)), Home::Secondary { .. }) => Some(owner),
            _ => None,
        }
    }

    /// The secondary said no. Says what the primary has to be given back.
    pub(super) fn refused(&self, nonce: &Nonce) -> Option<Owner> {
        let mut known = self.0.lock();
        let known = known.get_mut(nonce)?;
        match *known {
            Known::Late(owner) => {
                *known = Known::Refused;
                Some(owner)
            }
            Known::Unheard => {
                *known = Known::Refused;
                None
            }
            Known::At(_) | Known::Refused => None,
        }
    }

    /// The primary did not answer in time.
    pub(super) fn unheard(&self, nonce: Nonce) {
        self.0.lock().get_or_insert(nonce, || Known::Unheard);
    }

    /// The primary granted it after that. True when it has to be given back.
    pub(super) fn late(&self, owner: Owner) -> bool {
        let mut known = self.0.lock();
        match known.get(&owner.nonce) {
            Some(Known::At(Home::Primary)) => false,
            Some(Known::At(Home::Secondary { .. }) | Known::Refused) => true,
            Some(Known::Unheard | Known::Late(_)) | None => {
                known.put(owner.nonce, Known::Late(owner));
                false
            }
        }
    }
}
