//! Keys that wait for an operator: each is logged and counted when this process learns of it, not at the next
//! cleanup.

use std::collections::VecDeque;

use crate::{Claim, KeyHash, sync::Mutex, telemetry};

/// Keys that requests have met. After so many others a key is told again.
const REMEMBERED: usize = 1024;

/// The keys that this process has told of, the oldest first. An answer to a claim does not say whether the key
/// became Unknown or Dead by it, or stood so before: without this memory every retry would be counted.
#[derive(Debug, Default)]
pub(super) struct Stuck(Mutex<VecDeque<(KeyHash, Waits)>>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Waits {
    Unknown,
    Dead,
}

impl Stuck {
    /// The owner gave the key up and it became Unknown: always told, the key may have been reopened before.
    pub(super) fn gave_up(&self, key: &KeyHash) {
        self.remember(*key, Waits::Unknown);
        telemetry::became_unknown(key);
        telemetry::one_more_unknown();
    }

    /// A claim was answered: told if it is the first such answer for this key.
    pub(super) fn claimed(&self, key: &KeyHash, answer: &Claim) {
        match answer {
            Claim::Unknown if self.remember(*key, Waits::Unknown) => telemetry::became_unknown(key),
            Claim::Dead if self.remember(*key, Waits::Dead) => telemetry::became_dead(key),
            _ => {}
        }
    }

    /// True when it was not remembered.
    fn remember(&self, key: KeyHash, waits: Waits) -> bool {
        let mut told = self.0.lock();
        if told.contains(&(key, waits)) {
            return false;
        }
        if told.len() == REMEMBERED {
            told.pop_front();
        }
        told.push_back((key, waits));
        true
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_until_a_thousand_others_came() {
        let stuck = Stuck::default();
        let key = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            KeyHash::from_bytes(bytes)
        };
        assert!(stuck.remember(key(0), Waits::Unknown));
        assert!(!stuck.remember(key(0), Waits::Unknown));
        assert!(stuck.remember(key(0), Waits::Dead), "a key that died after that is told, too");
        for number in 1..REMEMBERED {
            assert!(stuck.remember(key(number), Waits::Unknown));
        }
        assert_eq!(stuck.0.lock().len(), REMEMBERED);
        assert!(stuck.remember(key(0), Waits::Unknown));
    }
}
