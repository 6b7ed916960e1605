//! An open store without threads, and random calls for it.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Effect, Fingerprint, KeyHash, ManualClock, Nonce,
    OnLostOwner, Outcome, Owner, Record, ReleaseRequest, RenewRequest, Result, Span, State, Terms,
    Timestamp,
};

use super::simulated_disk::SimulatedDisk;
use crate::{
    index::IndexSlot,
    log::Filling,
    open::{OpenedFolder, open},
    request::{WriterReply, WriterRequest},
    writer::read,
};

/// Small, so that a run has many segments; large enough that eight calls are one batch.
pub(super) const SEGMENT: u64 = 32 << 10;

/// What the store holds, by key.
pub(super) type Dump = BTreeMap<KeyHash, Record>;

/// A store on a simulated disk whose writer is called by hand.
pub(super) struct TestStore {
    pub(super) disk: SimulatedDisk,
    pub(super) clock: ManualClock,
    pub(super) store: OpenedFolder,
    rng: StdRng,
    owners: Vec<Owner>,
}

impl TestStore {
    pub(super) fn open(disk: &SimulatedDisk, clock: &ManualClock, seed: u64) -> Result<Self> {
        let rng = StdRng::seed_from_u64(seed);
        Ok(Self { rng, ..Self::open_with(disk, clock, SEGMENT)? })
    }

    /// With segments of another length.
    pub(super) fn open_with(
        disk: &SimulatedDisk,
        clock: &ManualClock,
        segment: u64,
    ) -> Result<Self> {
        Self::open_filling(disk, clock, segment, Filling::Inline)
    }

    pub(super) fn open_filling(
        disk: &SimulatedDisk,
        clock: &ManualClock,
        segment: u64,
        filling: Filling,
    ) -> Result<Self> {
        let mut store = open(Arc::new(disk.clone()), segment, filling, Arc::new(clock.clone()))?;
        store.writer.compaction = store.writer.compaction.with_slack(SEGMENT / 2);
        let (disk, clock, rng) = (disk.clone(), clock.clone(), StdRng::seed_from_u64(0));
        Ok(Self { disk, clock, store, rng, owners: Vec::new() })
    }

    /// The next process, on the same disk or on what a power cut left of it.
    pub(super) fn reopen(self, disk: &SimulatedDisk) -> Result<Self> {
        self.reopen_with(disk, SEGMENT)
    }

    pub(super) fn reopen_with(self, disk: &SimulatedDisk, segment: u64) -> Result<Self> {
        let Self { clock, store, rng, owners, .. } = self;
        drop(store);
        Ok(Self { rng, owners, ..Self::open_with(disk, &clock, segment)? })
    }

    /// One batch, answered and compacted up after.
    pub(super) fn work(&mut self, calls: Vec<WriterRequest>) -> Vec<Result<WriterReply>> {
        let answers = self.store.writer.work(calls);
        for said in answers.iter().flatten() {
            if let WriterReply::Claim(Claim::Granted(lease)) = said {
                self.owners.push(lease.owner);
            }
        }
        self.store.writer.compact();
        answers
    }

    pub(super) fn claim(&mut self, key: u64) -> Result<Claim> {
        let call = WriterRequest::Claim(claim(key, OnLostOwner::Rerun));
        match self.work(vec![call]).remove(0)? {
            WriterReply::Claim(claim) => Ok(claim),
            said => panic!("{said:?}"),
        }
    }

    pub(super) fn complete(&mut self, owner: Owner, bytes: usize) -> Result<WriterReply> {
        self.work(vec![WriterRequest::Complete(CompleteRequest { owner, outcome: outcome(bytes) })])
            .remove(0)
    }

    /// A claim that is granted.
    pub(super) fn own(&mut self, key: u64) -> Owner {
        match self.claim(key) {
            Ok(Claim::Granted(lease)) => lease.owner,
            answer => panic!("{answer:?}"),
        }
    }

    /// Up to so many calls of all kinds, by owners known and unknown.
    pub(super) fn random_calls(&mut self, most: usize) -> Vec<WriterRequest> {
        let count = self.rng.random_range(1..=most);
        (0..count).map(|_| self.random_call()).collect()
    }

    fn random_call(&mut self) -> WriterRequest {
        let rng = &mut self.rng;
        let key = rng.random_range(0..50);
        let hold = if rng.random_ratio(1, 4) { OnLostOwner::Hold } else { OnLostOwner::Rerun };
        if self.owners.is_empty() || rng.random_ratio(2, 5) {
            return WriterRequest::Claim(claim(key, hold));
        }
        let owner = self.owners[rng.random_range(0..self.owners.len())];
        let bytes = rng.random_range(0..200);
        match rng.random_range(0..20) {
            0..=11 => WriterRequest::Complete(CompleteRequest { owner, outcome: outcome(bytes) }),
            12..=13 => WriterRequest::Release(ReleaseRequest { owner, effect: Effect::None }),
            14 => WriterRequest::Release(ReleaseRequest { owner, effect: Effect::Possible }),
            15..=16 => {
                let max_run = Span::from_millis(9_000).to_duration();
                WriterRequest::Renew(RenewRequest::new(owner, max_run))
            }
            17..=18 => WriterRequest::Forget(owner.key),
            _ => WriterRequest::Erase(owner.key),
        }
    }

    /// What the store holds, without what a restart would find expired. How the lease of a claim runs
    /// is left out: that is in memory only.
    pub(super) fn dump(&self) -> Dump {
        let (store, now) = (&self.store, self.store.clock.now());
        let mut dump = Dump::new();
        for shard in store.index.shards() {
            let shard = shard.lock();
            let kept = |slot: &&IndexSlot| slot.expires_on_disk_at().is_none_or(|at| at > now);
            for slot in shard.slots().filter(kept) {
                let on_disk = || read(&store.segments, &slot.key, slot.location).unwrap().unwrap();
                let record = slot.record().cloned().unwrap_or_else(on_disk);
                dump.insert(slot.key, without_lease(record));
            }
        }
        dump
    }
}

fn without_lease(record: Record) -> Record {
    if record.state != State::InProgress {
        return record;
    }
    Record { contested: false, lease_until: Timestamp::default(), expires_at: None, ..record }
}

pub(super) fn claim(key: u64, on_lost_owner: OnLostOwner) -> ClaimRequest {
    ClaimRequest {
        key: key_of(key),
        fingerprint: Fingerprint::of(&key).unwrap(),
        nonce: Nonce::random(),
        terms: Terms {
            lease: Span::from_millis(1_000),
            on_lost_owner,
            max_attempts: NonZeroU32::new(100),
            retention: Span::from_millis(20_000),
            failure_retention: Span::from_millis(5_000),
        },
        labels: None,
    }
}

/// Spread over all shards.
pub(super) fn key_of(key: u64) -> KeyHash {
    let mut bytes = [0; 32];
    for (n, part) in bytes.chunks_mut(8).enumerate() {
        let mixed = (key + 1 + n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        part.copy_from_slice(&mixed.to_be_bytes());
    }
    KeyHash::from_bytes(bytes)
}

/// So many bytes that do not compress.
fn outcome(bytes: usize) -> Arc<Outcome> {
    let body: Vec<u8> = (0..bytes).map(|_| rand::random()).collect();
    Arc::new(Outcome::success(body))
}
