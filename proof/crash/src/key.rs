//! The keys of a run. The number of a key decides its tenant and its class, so that the worker, the checker and
//! the reader of a report agree without a list.

use std::{fmt, str::FromStr, time::Duration};

use semel_core::{Key, OnLostOwner, Policy, Result, Scope};
use serde::{Deserialize, Serialize};

const TENANTS: [&str; 2] = ["a", "b"];

/// One key: tenant `a` or `b`, and the caller's id. Both tenants use the same ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyId(pub u32);

impl KeyId {
    /// The tenant that the key belongs to.
    #[must_use]
    pub const fn tenant(self) -> &'static str {
        TENANTS[self.0 as usize % TENANTS.len()]
    }

    /// The class of the key, which decides its policy.
    #[must_use]
    pub const fn class(self) -> KeyClass {
        match self.0 / 2 % 8 {
            0..=2 => KeyClass::Rerun,
            3 | 4 => KeyClass::Hold,
            5 => KeyClass::Capped,
            6 => KeyClass::Brief,
            _ => KeyClass::Slow,
        }
    }

    /// True for the keys that the operator of a chaos run forgets and erases.
    #[must_use]
    pub const fn is_operated(self) -> bool {
        self.0 / 2 % 8 == 2
    }

    /// The key as the engine takes it.
    ///
    /// # Errors
    ///
    /// Never in practice: names of this form are valid.
    pub fn to_key(self, namespace: &str) -> Result<Key> {
        Scope::new(namespace, self.tenant(), "chaos").key(format!("k{}", self.0 / 2))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/k{}", self.tenant(), self.0 / 2)
    }
}

impl From<KeyId> for String {
    fn from(key: KeyId) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for KeyId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for KeyId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (tenant, id) = text.split_once("/k")?;
            let tenant = TENANTS.iter().position(|known| *known == tenant)?;
            Some(Self(id.parse::<u32>().ok()? * 2 + u32::try_from(tenant).ok()?))
        };
        parse().ok_or_else(|| format!("`{text}` is not a key; keys look like `a/k12`"))
    }
}

/// The class of a key, which decides its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyClass {
    /// The work runs again after a lost owner.
    Rerun,
    /// The work never runs again after a lost owner.
    Hold,
    /// The work runs again, three times at most.
    Capped,
    /// The work runs again, and the outcome has a very short retention.
    Brief,
    /// The work runs again. Runs may take longer than `max_run`, so keys are taken over while their owners live.
    Slow,
}

impl KeyClass {
    /// The lease of every claim.
    pub const LEASE: Duration = Duration::from_millis(80);
    /// The retention of [`KeyClass::Brief`].
    pub const BRIEF: Duration = Duration::from_millis(120);
    /// The attempts of [`KeyClass::Capped`].
    pub const CAP: u32 = 3;

    /// The policy for keys of this class. In runs that are checked, `lease` is [`KeyClass::LEASE`].
    #[must_use]
    pub const fn policy(self, lease: Duration) -> Policy {
        let policy = Policy::api()
            .lease(lease)
            .max_run(Duration::from_secs(5))
            .wait(Duration::from_millis(40))
            .backoff(Duration::from_millis(20))
            .record_budget(Duration::from_secs(5));
        match self {
            Self::Rerun => policy,
            Self::Hold => policy.on_lost_owner(OnLostOwner::Hold),
            Self::Capped => policy.max_attempts(Self::CAP),
            Self::Brief => policy.retention(Self::BRIEF).failure_retention(Self::BRIEF),
            Self::Slow => policy.max_run(lease),
        }
    }

    /// The retention, if it is short enough to end within a run.
    #[must_use]
    pub const fn retention(self) -> Option<Duration> {
        match self {
            Self::Brief => Some(Self::BRIEF),
            Self::Rerun | Self::Hold | Self::Capped | Self::Slow => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_from_its_name() {
        for id in 0..40 {
            assert_eq!(KeyId(id).to_string().parse(), Ok(KeyId(id)));
        }
        assert!("c/k1".parse::<KeyId>().is_err());
    }

    #[test]
    fn both_tenants_have_a_key_of_the_same_id_and_class() {
        assert_eq!((KeyId(6).to_string(), KeyId(7).to_string()), ("a/k3".into(), "b/k3".into()));
        assert_eq!(KeyId(6).class(), KeyId(7).class());
    }

    #[test]
    fn every_policy_is_within_bounds() {
        assert!((0..16).all(|id| KeyId(id).class().policy(KeyClass::LEASE).check().is_ok()));
    }
}
