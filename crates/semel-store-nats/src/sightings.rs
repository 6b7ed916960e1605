//! Sightings of claims, and the rule for a takeover.
//!
//! NATS has no server time by which a lease could be judged, so no clock of another machine decides about it. A claim
//! has ended when this process has seen the same revision, stored at the same time, for 1.1 times the lease by its
//! own monotonic clock. A renewal writes a new revision. A process that sees a claim for the first time waits that
//! long from then on, so a takeover may come late, but never early. The same holds for the grace period of a contested
//! record, which is a revision of its own.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;
use semel_core::{KeyHash, Nonce, Owner, Record, State, Timestamp};
use semel_remote::BuildPrefixHasher;

use crate::value::KeySnapshot;

/// Most sightings that are remembered. The least recently seen are forgotten first, and then begin again.
const SIGHTINGS: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");
/// Most claims of this process that are remembered.
const CLAIMS: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");

/// Since when this process has seen claims, and its own claims as it wrote them.
#[derive(Debug)]
pub(crate) struct Sightings {
    sightings: Mutex<LruCache<KeyHash, ClaimSighting, BuildPrefixHasher>>,
    claims: Mutex<LruCache<Nonce, OwnClaim, BuildPrefixHasher>>,
}

#[derive(Clone, Copy, Debug)]
struct ClaimSighting {
    revision: u64,
    at: StoredAt,
    since: Instant,
}

/// When the server stored the revision.
#[derive(Clone, Copy, Debug)]
enum StoredAt {
    Server(Timestamp),
    /// This process wrote it, and the acknowledgement has no time. If a connection was lost since, the revision may
    /// be another message: a server that lost its data counts revisions from one again.
    Own {
        lost_connections: u64,
    },
}

/// A claim of this process as it was written, so that a completion need not read it first.
#[derive(Debug)]
pub(crate) struct OwnClaim {
    pub(crate) revision: u64,
    pub(crate) record: Record,
    /// The number of connections that had been lost before.
    lost_connections: u64,
}

impl Sightings {
    pub(crate) fn new() -> Self {
        Self {
            sightings: Mutex::new(LruCache::with_hasher(SIGHTINGS, BuildPrefixHasher::default())),
            claims: Mutex::new(LruCache::with_hasher(CLAIMS, BuildPrefixHasher::default())),
        }
    }

    /// Remembers a record that this process wrote. `lost_connections` is the count at the beginning of the request.
    pub(crate) fn wrote(&self, record: Record, revision: u64, lost_connections: u64) {
        if record.state != State::InProgress {
            self.sightings.lock().pop(&record.key);
            return;
        }
        let sighting = ClaimSighting {
            revision,
            at: StoredAt::Own { lost_connections },
            since: Instant::now(),
        };
        self.sightings.lock().put(record.key, sighting);
        if let Some(nonce) = record.nonce.filter(|_| !record.abandoned && !record.contested) {
            self.claims.lock().put(nonce, OwnClaim { revision, record, lost_connections });
        }
    }

    /// Takes an own claim: whatever its owner does next changes it. `None` if a connection was lost since: a server
    /// that lost its data counts revisions from one again, so the revision may be another claim.
    pub(crate) fn take(&self, owner: &Owner, lost_connections: u64) -> Option<OwnClaim> {
        self.claims
            .lock()
            .pop(&owner.nonce)
            .filter(|claim| claim.lost_connections == lost_connections)
    }

    /// The record for requests that decide about another owner's lease: the lease is live until it was seen long
    /// enough.
    pub(crate) fn with_observed_lease(
        &self,
        snapshot: &KeySnapshot,
        now: Timestamp,
        lost_connections: u64,
    ) -> Option<Record> {
        let record = snapshot.record.clone()?;
        if record.state != State::InProgress {
            return Some(record);
        }
        let lease = record.lease_until.since(snapshot.at);
        let observed = self.observe(&record.key, snapshot, lost_connections);
        let left = takeover_delay(lease).saturating_sub(observed);
        let lease_until = if left.is_zero() {
            record.lease_until.min(now)
        } else {
            // A reply never makes a caller wait longer than a lease.
            now.after(left.min(lease).max(Duration::from_millis(1)))
        };
        Some(Record { lease_until, ..record })
    }

    /// How long this process has seen this revision of the key.
    fn observe(&self, key: &KeyHash, snapshot: &KeySnapshot, lost_connections: u64) -> Duration {
        let (mut sightings, since) = (self.sightings.lock(), Instant::now());
        let at = StoredAt::Server(snapshot.at);
        let is_same = |sighting: &ClaimSighting| match sighting.at {
            StoredAt::Server(at) => at == snapshot.at,
            StoredAt::Own { lost_connections: before } => before == lost_connections,
        };
        if let Some(sighting) = sightings.get_mut(key)
            && sighting.revision == snapshot.revision
            && is_same(sighting)
        {
            sighting.at = at;
            return sighting.since.elapsed();
        }
        sightings.put(*key, ClaimSighting { revision: snapshot.revision, at, since });
        Duration::ZERO
    }
}

/// How long a lease or a leader's term of `span` must be seen unchanged before it has ended.
pub(crate) fn takeover_delay(span: Duration) -> Duration {
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
    pub(crate) fn snapshot(revision: u64, at: Timestamp) -> KeySnapshot {
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
        KeySnapshot { revision, at, record: Some(record), ..KeySnapshot::default() }
    }

    fn is_live(sightings: &Sightings, snapshot: &KeySnapshot, now: Timestamp) -> bool {
        sightings.with_observed_lease(snapshot, now, 0).unwrap().is_leased(now)
    }

    #[test]
    fn a_lease_ends_only_when_it_was_seen_unchanged_for_long_enough() {
        let (sightings, later) = (Sightings::new(), AT.after(Duration::from_secs(3600)));
        assert!(is_live(&sightings, &snapshot(5, AT), later), "a clock must not end a lease");
        sleep(LEASE * 11 / 10);
        assert!(!is_live(&sightings, &snapshot(5, AT), later));
        assert!(is_live(&sightings, &snapshot(6, AT), later), "a renewal starts the time again");
        assert!(
            is_live(&sightings, &snapshot(6, later), later),
            "another message with the same revision does too"
        );
    }

    #[test]
    fn the_lease_of_an_own_claim_counts_from_its_write() {
        let (sightings, claim) = (Sightings::new(), snapshot(5, AT));
        sightings.wrote(claim.record.clone().unwrap(), 5, 0);
        sleep(LEASE * 11 / 10);
        assert!(
            sightings.with_observed_lease(&claim, AT, 1).unwrap().is_leased(AT),
            "the revision may be another claim"
        );
        sightings.wrote(claim.record.clone().unwrap(), 5, 0);
        sleep(LEASE * 11 / 10);
        assert!(!is_live(&sightings, &claim, AT), "the server's clock is not used");
    }

    #[test]
    fn the_remaining_time_is_at_most_a_lease() {
        let record = Sightings::new().with_observed_lease(&snapshot(5, AT), AT, 0).unwrap();
        assert_eq!(record.lease_until, AT.after(LEASE));
    }
}
