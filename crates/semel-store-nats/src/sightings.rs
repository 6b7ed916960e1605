//! What this process has seen of claims, and the rule by which it takes one over.
//!
//! NATS tells no time that a lease could be judged by, so nobody's clock judges it: a claim is over when
//! this process has seen the same revision, taken at the same time, for 1.1 times its span by its own
//! monotonic clock. An owner that renews writes a new revision. Who sees a claim for the first time waits
//! that long from then on, so a takeover may come late and never early.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;
use semel_core::{KeyHash, Nonce, Owner, Record, State, Timestamp};
use semel_remote::BuildPrefixHasher;

use crate::value::Seen;

/// Claims whose sightings are remembered; of more, the longest unseen are forgotten and begin anew.
const SIGHTINGS: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");
/// Own claims that are remembered as they were written.
const CLAIMS: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");

/// What this process has seen of claims.
#[derive(Debug)]
pub(crate) struct Known {
    sightings: Mutex<LruCache<KeyHash, Sighted, BuildPrefixHasher>>,
    claims: Mutex<LruCache<Nonce, Claimed, BuildPrefixHasher>>,
}

#[derive(Clone, Copy, Debug)]
struct Sighted {
    revision: u64,
    at: When,
    since: Instant,
}

/// When the server took it.
#[derive(Clone, Copy, Debug)]
enum When {
    Told(Timestamp),
    /// Who wrote it was not told. It is another message if a connection was lost since: a server that lost what
    /// it had counts anew.
    Own {
        losses: u64,
    },
}

/// An own claim as it was written, so that a completion need not read it first.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) revision: u64,
    pub(crate) record: Record,
    /// Connections that had been lost before.
    losses: u64,
}

impl Known {
    pub(crate) fn new() -> Self {
        Self {
            sightings: Mutex::new(LruCache::with_hasher(SIGHTINGS, BuildPrefixHasher::default())),
            claims: Mutex::new(LruCache::with_hasher(CLAIMS, BuildPrefixHasher::default())),
        }
    }

    /// This process wrote a record, just now at the latest, in a call that began after so many losses.
    pub(crate) fn wrote(&self, record: Record, revision: u64, losses: u64) {
        if record.state != State::InProgress {
            self.sightings.lock().pop(&record.key);
            return;
        }
        let sighted = Sighted { revision, at: When::Own { losses }, since: Instant::now() };
        self.sightings.lock().put(record.key, sighted);
        if let Some(nonce) = record.nonce.filter(|_| !record.abandoned) {
            self.claims.lock().put(nonce, Claimed { revision, record, losses });
        }
    }

    /// An own claim, once: whatever its owner does next changes it. Not after a connection was lost since:
    /// a server that lost what it had counts anew, and the revision may be another's.
    pub(crate) fn take(&self, owner: &Owner, losses: u64) -> Option<Claimed> {
        self.claims.lock().pop(&owner.nonce).filter(|claimed| claimed.losses == losses)
    }

    /// The record as contenders have to take it: its lease is live until it was seen long enough.
    pub(crate) fn judged(&self, seen: &Seen, now: Timestamp, losses: u64) -> Option<Record> {
        let record = seen.record.clone()?;
        if record.state != State::InProgress {
            return Some(record);
        }
        let lease = record.lease_until.since(seen.at);
        let watched = self.sight(&record.key, seen, losses);
        let left = long_enough(lease).saturating_sub(watched);
        let lease_until = if left.is_zero() {
            record.lease_until.min(now)
        } else {
            // Nobody is told of more than a lease.
            now.after(left.min(lease).max(Duration::from_millis(1)))
        };
        Some(Record { lease_until, ..record })
    }

    /// How long this process has seen the key like this.
    fn sight(&self, key: &KeyHash, seen: &Seen, losses: u64) -> Duration {
        let (mut sightings, since) = (self.sightings.lock(), Instant::now());
        let at = When::Told(seen.at);
        let is_same = |sighted: &Sighted| match sighted.at {
            When::Told(at) => at == seen.at,
            When::Own { losses: before } => before == losses,
        };
        if let Some(sighted) = sightings.get_mut(key)
            && sighted.revision == seen.revision
            && is_same(sighted)
        {
            sighted.at = at;
            return sighted.since.elapsed();
        }
        sightings.put(*key, Sighted { revision: seen.revision, at, since });
        Duration::ZERO
    }
}

/// How long something that ends by itself after `span` has to be seen unchanged before it has ended.
pub(crate) fn long_enough(span: Duration) -> Duration {
    span + span / 10
}

#[cfg(test)]
pub(crate) mod tests {
    use std::thread::sleep;

    use semel_core::{ClaimRequest, Fingerprint, OnLostOwner, Span, Terms, steps};

    use super::*;

    const LEASE: Duration = Duration::from_millis(40);
    const AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// A key that was claimed at that time.
    pub(crate) fn seen(revision: u64, at: Timestamp) -> Seen {
        let span = Span::from_millis(86_400_000);
        let terms = Terms {
            lease: LEASE.into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: span,
            failure_retention: span,
        };
        let request = ClaimRequest {
            key: KeyHash::from_bytes([7; 32]),
            fingerprint: Fingerprint::of_bytes(b"this"),
            nonce: Nonce::from_bytes([1; 16]),
            terms,
            labels: None,
        };
        let steps::Change::Put(record) = steps::claim(None, &request, at).change else {
            panic!("a first claim is granted")
        };
        Seen { revision, at, record: Some(record), ..Seen::default() }
    }

    fn is_live(known: &Known, seen: &Seen, now: Timestamp) -> bool {
        known.judged(seen, now, 0).unwrap().is_leased(now)
    }

    #[test]
    fn a_claim_is_over_only_when_it_was_seen_unchanged_for_long_enough() {
        let (known, later) = (Known::new(), AT.after(Duration::from_secs(3600)));
        assert!(is_live(&known, &seen(5, AT), later), "a clock must not end a lease");
        sleep(LEASE * 11 / 10);
        assert!(!is_live(&known, &seen(5, AT), later));
        assert!(is_live(&known, &seen(6, AT), later), "a renewal begins anew");
        assert!(is_live(&known, &seen(6, later), later), "so does another message");
    }

    #[test]
    fn an_own_claim_counts_from_its_write() {
        let (known, claim) = (Known::new(), seen(5, AT));
        known.wrote(claim.record.clone().unwrap(), 5, 0);
        sleep(LEASE * 11 / 10);
        assert!(known.judged(&claim, AT, 1).unwrap().is_leased(AT), "it may be another's by now");
        known.wrote(claim.record.clone().unwrap(), 5, 0);
        sleep(LEASE * 11 / 10);
        assert!(!is_live(&known, &claim, AT), "though the server's clock stands still");
    }

    #[test]
    fn nobody_is_told_of_more_than_a_lease() {
        let judged = Known::new().judged(&seen(5, AT), AT, 0).unwrap();
        assert_eq!(judged.lease_until, AT.after(LEASE));
    }
}
