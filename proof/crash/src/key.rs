//! The keys of a run. What a key's number is decides whose it is and how it is treated, so that the
//! worker, the checker and the reader of a report agree without asking each other.

use std::{fmt, str::FromStr, time::Duration};

use semel_core::{Key, OnLostOwner, Policy, Result, Scope};
use serde::{Deserialize, Serialize};

const TENANTS: [&str; 2] = ["a", "b"];

/// One key: tenant `a` or `b`, and the caller's id. Both tenants use the same ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyId(pub u32);

impl KeyId {
    /// Whose key it is.
    #[must_use]
    pub const fn tenant(self) -> &'static str {
        TENANTS[self.0 as usize % TENANTS.len()]
    }

    /// How the key is treated.
    #[must_use]
    pub const fn class(self) -> Class {
        match self.0 / 2 % 8 {
            0..=2 => Class::Rerun,
            3 | 4 => Class::Hold,
            5 => Class::Capped,
            6 => Class::Brief,
            _ => Class::Slow,
        }
    }

    /// True for the keys that operators forget and erase in a storm.
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
        Scope::new(namespace, self.tenant(), "storm").key(format!("k{}", self.0 / 2))
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

/// How a key is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Run again after a lost owner.
    Rerun,
    /// Never run again after a lost owner.
    Hold,
    /// Run again, three times at most.
    Capped,
    /// Run again, and kept for a moment only.
    Brief,
    /// Run again, with runs that outlast what is renewed: owners are taken over while they live.
    Slow,
}

impl Class {
    /// How long an owner may stay silent.
    pub const LEASE: Duration = Duration::from_millis(80);
    /// How long a key of class [`Class::Brief`] is kept.
    pub const BRIEF: Duration = Duration::from_millis(120);
    /// Attempts of a key of class [`Class::Capped`].
    pub const CAP: u32 = 3;

    /// The policy for keys of this class; `lease` is [`Class::LEASE`] wherever the checker looks.
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

    /// How long a record is kept, if a run can see its end.
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
        assert!((0..16).all(|id| KeyId(id).class().policy(Class::LEASE).check().is_ok()));
    }
}
