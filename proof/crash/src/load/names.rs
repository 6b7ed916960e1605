//! Translates key hashes and fingerprints back to the keys and payloads of the run.

use std::collections::HashMap;

use anyhow::Result;
use semel_core::{Fingerprint, KeyHash, Store};

use super::job::WorkerJob;
use crate::key::KeyId;

/// Payloads sent under one key: the usual one, and two that are mismatches.
pub(super) const PAYLOADS: u8 = 3;

/// The fingerprint of a payload.
pub(super) fn fingerprint(payload: u8) -> Fingerprint {
    Fingerprint::of_bytes(&[b'p', payload])
}

#[derive(Debug)]
pub(super) struct KeyNames {
    keys: HashMap<KeyHash, KeyId>,
    payloads: HashMap<Fingerprint, u8>,
}

impl KeyNames {
    pub(super) fn new(job: &WorkerJob, store: &dyn Store) -> Result<Self> {
        Self::of(job.first_key..job.first_key + job.keys, &job.namespace, store)
    }

    pub(super) fn of(
        keys: std::ops::Range<u32>,
        namespace: &str,
        store: &dyn Store,
    ) -> Result<Self> {
        let secret = store.info().hash_secret;
        let hash = |id| -> Result<_> {
            Ok((KeyId(id).to_key(namespace)?.hash(secret.as_ref()), KeyId(id)))
        };
        let payloads = (0..PAYLOADS).map(|it| (fingerprint(it).sealed(secret.as_ref()), it));
        Ok(Self { keys: keys.map(hash).collect::<Result<_>>()?, payloads: payloads.collect() })
    }

    pub(super) fn key(&self, hash: &KeyHash) -> Option<KeyId> {
        self.keys.get(hash).copied()
    }

    pub(super) fn payload(&self, fingerprint: &Fingerprint) -> Option<u8> {
        self.payloads.get(fingerprint).copied()
    }
}
