//! The keys and nonces for the small numbers of a sequence. Each sequence has keys of its own, so that many can run
//! on one server.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::{
    AbandonRequest, Body, ClaimRequest, CompleteRequest, Decision, Fingerprint, Head, KeyHash,
    Labels, Nonce, Outcome, Owner, ReleaseRequest, RenewRequest, ResolveRequest,
};

use super::{
    model::StepRequest,
    transition::{IndexedDecision, IndexedOwner, IndexedStep, NonceIndex},
};

/// Keys of a sequence.
pub(super) const KEYS: usize = 3;

/// The second byte of the keys: keys with the same first byte have a fixed order.
const ORDER: [u8; KEYS] = [0, 1, 2];

/// Outcomes to choose from.
pub(super) const OUTCOMES: u8 = 4;

/// The keys and nonces of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Identifiers {
    pub(super) keys: [KeyHash; KEYS],
    pub(super) namespace: String,
    salt: [u8; 12],
}

impl Identifiers {
    /// Random keys with these first bytes.
    pub(super) fn random(starts: [u8; KEYS]) -> Self {
        let (salt, namespace): ([u8; 12], u64) = rand::random();
        let keys = std::array::from_fn(|index| {
            let mut bytes: [u8; 32] = rand::random();
            bytes[..2].copy_from_slice(&[starts[index], ORDER[index]]);
            KeyHash::from_bytes(bytes)
        });
        Self { keys, namespace: format!("machine-{namespace:016x}"), salt }
    }

    /// Fixed keys, for the generator.
    pub(super) fn fixed() -> Self {
        let keys = [[1; 32], [2; 32], [3; 32]].map(KeyHash::from_bytes);
        Self { keys, namespace: String::new(), salt: [0; 12] }
    }

    /// The number is the first part of the nonce, which messages show. An inverted number makes the inverted nonce,
    /// which a key has that became dead after a release.
    fn nonce(&self, index: NonceIndex) -> Nonce {
        let flip = if index > NonceIndex::MAX / 2 { 0xff } else { 0 };
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&index.to_be_bytes());
        bytes[4..].copy_from_slice(&self.salt.map(|byte| byte ^ flip));
        Nonce::from_bytes(bytes)
    }

    fn owner(&self, pair: IndexedOwner) -> Owner {
        Owner { key: self.keys[pair.key], nonce: self.nonce(pair.nonce), token: pair.token }
    }

    /// The request for a step.
    pub(super) fn request(&self, step: &IndexedStep) -> StepRequest {
        match *step {
            IndexedStep::Claim { key, nonce, fingerprint, labels, terms } => {
                StepRequest::Claim(ClaimRequest {
                    key: self.keys[key],
                    fingerprint: Fingerprint::of_bytes(&[fingerprint]),
                    nonce: self.nonce(nonce),
                    terms,
                    labels: labels.then(|| Labels::new(&self.namespace, "", "step", "id")),
                })
            }
            IndexedStep::Renew { by, max_run } => {
                StepRequest::Renew(RenewRequest::new(self.owner(by), max_run))
            }
            IndexedStep::Complete { by, outcome: number } => {
                StepRequest::Complete(CompleteRequest {
                    owner: self.owner(by),
                    outcome: outcome(number),
                })
            }
            IndexedStep::Release { by, effect } => {
                StepRequest::Release(ReleaseRequest { owner: self.owner(by), effect })
            }
            IndexedStep::Abandon { by, backoff } => {
                StepRequest::Abandon(AbandonRequest { owner: self.owner(by), backoff })
            }
            IndexedStep::Resolve { key, seen, decision } => StepRequest::Resolve(ResolveRequest {
                key: self.keys[key],
                seen_nonce: seen.nonce.map(|index| self.nonce(index)),
                seen_token: seen.token,
                decision: decide(decision),
            }),
            IndexedStep::Erase { key } => StepRequest::Erase(self.keys[key]),
            IndexedStep::Forget { key } => StepRequest::Forget(self.keys[key]),
        }
    }
}

/// The number a nonce was made from.
pub(super) fn index_of(nonce: Nonce) -> NonceIndex {
    let [a, b, c, d, ..] = *nonce.as_bytes();
    NonceIndex::from_be_bytes([a, b, c, d])
}

fn decide(choice: IndexedDecision) -> Decision {
    match choice {
        IndexedDecision::Complete { outcome: number } => Decision::Complete(outcome(number)),
        IndexedDecision::Reopen(effect) => Decision::Reopen(effect),
    }
}

fn outcome(number: u8) -> Arc<Outcome> {
    let head = Head { status: Some(201), ..Head::default() };
    Arc::new(match number {
        0 => Outcome::success(Bytes::new()),
        1 => Outcome::success("done").with_head(head),
        2 => Outcome::failure("declined", "no"),
        _ => Outcome::success("").with_body(Body::Omitted { length: 1 << 40 }),
    })
}
