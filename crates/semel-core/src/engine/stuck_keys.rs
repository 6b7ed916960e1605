//! Logs and counts a key that waits for an operator when this process learns of it, not at the next cleanup.

use std::collections::VecDeque;

use crate::{
    Claim, KeyHash,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    telemetry,
};

/// How many reported keys are remembered. A key that as many others followed is reported again.
const REMEMBERED: usize = 1024;

/// The keys that this process has reported, the oldest first. The answer to a claim does not say whether the claim made
/// the key Unknown or Dead, or found it so: without this memory every retry would be counted.
#[derive(Debug, Default)]
pub(super) struct StuckKeys {
    reported: Mutex<VecDeque<(KeyHash, Reason)>>,
    /// Whether any is remembered, so that a claim takes no lock while none is.
    is_any: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reason {
    Unknown,
    Dead,
}

impl StuckKeys {
    /// Reports a key that its owner gave up and that became Unknown by that.
    pub(super) fn abandoned(&self, key: &KeyHash) {
        self.remember(*key, Reason::Unknown);
        telemetry::became_unknown(key);
        telemetry::one_more_unknown();
    }

    /// Reports the key if this is the first answer that says it is stuck. A key that runs or is replayed is not stuck
    /// any more, and will be reported if it becomes so again.
    pub(super) fn claim_answered(&self, key: &KeyHash, answer: &Claim) {
        match answer {
            Claim::Unknown if self.remember(*key, Reason::Unknown) => {
                telemetry::became_unknown(key);
            }
            Claim::Dead if self.remember(*key, Reason::Dead) => telemetry::became_dead(key),
            Claim::Granted(_) | Claim::Replay(_) => self.forget(key),
            Claim::Unknown
            | Claim::Dead
            | Claim::Busy { .. }
            | Claim::Mismatch
            | Claim::Gone
            | Claim::Released => {}
        }
    }

    /// True when it was not remembered.
    fn remember(&self, key: KeyHash, reason: Reason) -> bool {
        let mut reported = self.reported.lock();
        if reported.contains(&(key, reason)) {
            return false;
        }
        if reported.len() == REMEMBERED {
            reported.pop_front();
        }
        reported.push_back((key, reason));
        self.is_any.store(true, SeqCst);
        true
    }

    fn forget(&self, key: &KeyHash) {
        if self.is_any.load(SeqCst) {
            let mut reported = self.reported.lock();
            reported.retain(|(other, _)| other != key);
            self.is_any.store(!reported.is_empty(), SeqCst);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_until_a_thousand_others_came() {
        let stuck = StuckKeys::default();
        let key = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            KeyHash::from_bytes(bytes)
        };
        assert!(stuck.remember(key(0), Reason::Unknown));
        assert!(!stuck.remember(key(0), Reason::Unknown));
        assert!(
            stuck.remember(key(0), Reason::Dead),
            "a key that died after that is reported, too"
        );
        for number in 1..REMEMBERED {
            assert!(stuck.remember(key(number), Reason::Unknown));
        }
        assert_eq!(stuck.reported.lock().len(), REMEMBERED);
        assert!(stuck.remember(key(0), Reason::Unknown));
    }
}
