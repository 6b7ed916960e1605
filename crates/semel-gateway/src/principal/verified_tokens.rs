//! Caches verified tokens. Verifying a signature takes longer than everything else that is done with a request, and
//! clients send the same token many times.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use semel::Principal;

/// Verified tokens by their hash, until they expire.
#[derive(Debug, Default)]
pub(super) struct VerifiedTokens(Mutex<HashMap<[u8; 32], CachedPrincipal>>);

#[derive(Debug)]
struct CachedPrincipal {
    principal: Principal,
    until: SystemTime,
}

impl VerifiedTokens {
    /// The most tokens. Others are verified again.
    const MAX_TOKENS: usize = 10_000;

    pub(super) fn find(&self, token: &str) -> Option<Principal> {
        let tokens = self.0.lock();
        let cached = tokens.get(blake3::hash(token.as_bytes()).as_bytes())?;
        (SystemTime::now() < cached.until).then(|| cached.principal.clone())
    }

    /// Removes all tokens.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Caches a verified token until `expires`, counted from the Unix epoch.
    pub(super) fn insert(&self, token: &str, principal: &Principal, expires: Duration) {
        let Some(until) = SystemTime::UNIX_EPOCH.checked_add(expires) else { return };
        let cached = CachedPrincipal { principal: principal.clone(), until };
        let mut tokens = self.0.lock();
        if tokens.len() >= Self::MAX_TOKENS {
            let now = SystemTime::now();
            tokens.retain(|_, cached| now < cached.until);
        }
        if tokens.len() >= Self::MAX_TOKENS {
            tokens.clear();
        }
        tokens.insert(*blake3::hash(token.as_bytes()).as_bytes(), cached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verified_token_is_cached_until_it_expires() {
        let (verified, alice) = (VerifiedTokens::default(), Principal::from("alice"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        verified.insert("live", &alice, now + Duration::from_secs(60));
        verified.insert("over", &alice, now - Duration::from_secs(1));
        verified.insert("endless", &alice, Duration::MAX);
        assert_eq!(verified.find("live"), Some(alice));
        assert_eq!(
            (verified.find("over"), verified.find("other"), verified.find("endless")),
            (None, None, None)
        );
    }

    #[test]
    fn there_are_never_too_many() {
        let (verified, alice) = (VerifiedTokens::default(), Principal::from("alice"));
        let far = Duration::from_secs(1 << 40);
        for token in 0..VerifiedTokens::MAX_TOKENS + 10 {
            verified.insert(&token.to_string(), &alice, far);
        }
        assert!(verified.0.lock().len() <= VerifiedTokens::MAX_TOKENS);
        assert_eq!(verified.find(&(VerifiedTokens::MAX_TOKENS + 9).to_string()), Some(alice));
    }
}
