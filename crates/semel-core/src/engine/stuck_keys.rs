//! Logs and counts a key that waits for an operator as soon as this process sees it, and not only at the next cleanup.

use std::collections::VecDeque;

use crate::{
    Claim, KeyHash,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    telemetry,
};

/// How many reported keys are remembered. After as many other keys, a key is reported again.
const REMEMBERED: usize = 1024;

/// The keys that this process has reported, the oldest first. The reply to a claim does not say whether this claim made
/// the key Unknown or Dead, or an earlier one did: without this memory every retry would be counted.
#[derive(Debug, Default)]
pub(super) struct StuckKeys {
    reported: Mutex<VecDeque<(KeyHash, StuckReason)>>,
    /// True while a key is remembered, so that a claim takes no lock while none is.
    has_any: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum StuckReason {
    Unknown,
    Dead,
}

impl StuckKeys {
    /// Reports a key that became Unknown because its owner abandoned it.
    pub(super) fn abandoned(&self, key: &KeyHash) {
        self.remember(*key, StuckReason::Unknown);
        telemetry::became_unknown(key);
        telemetry::one_more_unknown();
    }

    /// Reports the key if this is the first reply that says it is stuck. A key that runs or is replayed is not stuck
    /// any more, and will be reported if it gets stuck again.
    pub(super) fn claim_replied(&self, key: &KeyHash, reply: &Claim) {
        match reply {
            Claim::Unknown if self.remember(*key, StuckReason::Unknown) => {
                telemetry::became_unknown(key);
            }
            Claim::Dead if self.remember(*key, StuckReason::Dead) => telemetry::became_dead(key),
            Claim::Granted(_) | Claim::Replay(_) => self.forget(key),
            Claim::Unknown
            | Claim::Dead
            | Claim::Busy { .. }
            | Claim::Mismatch
            | Claim::Gone
            | Claim::Released => {}
        }
    }

    /// True when the key was not remembered before.
    fn remember(&self, key: KeyHash, reason: StuckReason) -> bool {
        let mut reported = self.reported.lock();
        if reported.contains(&(key, reason)) {
            return false;
        }
        if reported.len() == REMEMBERED {
            reported.pop_front();
        }
        reported.push_back((key, reason));
        self.has_any.store(true, SeqCst);
        true
    }

    fn forget(&self, key: &KeyHash) {
        if self.has_any.load(SeqCst) {
            let mut reported = self.reported.lock();
            reported.retain(|(other, _)| other != key);
            self.has_any.store(!reported.is_empty(), SeqCst);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_until_1024_other_keys_were_reported() {
        let stuck = StuckKeys::default();
        let key = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            KeyHash::from_bytes(bytes)
        };
        assert!(stuck.remember(key(0), StuckReason::Unknown));
        assert!(!stuck.remember(key(0), StuckReason::Unknown));
        assert!(
            stuck.remember(key(0), StuckReason::Dead),
            "a key that dies after that is reported again"
        );
        for number in 1..REMEMBERED {
            assert!(stuck.remember(key(number), StuckReason::Unknown));
        }
        assert_eq!(stuck.reported.lock().len(), REMEMBERED);
        assert!(stuck.remember(key(0), StuckReason::Unknown));
    }
}
