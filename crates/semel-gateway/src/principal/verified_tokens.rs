//! Tokens whose signature held. Verifying one takes longer than everything else that is done with a request,
//! and clients send the same token many times.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use semel::Principal;

/// Remembers a token by its hash until it expires.
#[derive(Debug, Default)]
pub(super) struct VerifiedTokens(Mutex<HashMap<[u8; 32], CachedPrincipal>>);

#[derive(Debug)]
struct CachedPrincipal {
    principal: Principal,
    until: SystemTime,
}

impl VerifiedTokens {
    /// More are forgotten, and verified again.
    const MOST: usize = 10_000;

    pub(super) fn find(&self, token: &str) -> Option<Principal> {
        let tokens = self.0.lock();
        let known = tokens.get(blake3::hash(token.as_bytes()).as_bytes())?;
        (SystemTime::now() < known.until).then(|| known.principal.clone())
    }

    /// Forgets all of them.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Keeps a verified token until `expires` seconds of the epoch, and no longer.
    pub(super) fn keep(&self, token: &str, principal: &Principal, expires: Duration) {
        let Some(until) = SystemTime::UNIX_EPOCH.checked_add(expires) else { return };
        let known = CachedPrincipal { principal: principal.clone(), until };
        let mut tokens = self.0.lock();
        if tokens.len() >= Self::MOST {
            let now = SystemTime::now();
            tokens.retain(|_, known| now < known.until);
        }
        if tokens.len() >= Self::MOST {
            tokens.clear();
        }
        tokens.insert(*blake3::hash(token.as_bytes()).as_bytes(), known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verified_token_is_cached_until_it_expires() {
        let (seen, alice) = (VerifiedTokens::default(), Principal::from("alice"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        seen.keep("live", &alice, now + Duration::from_secs(60));
        seen.keep("over", &alice, now - Duration::from_secs(1));
        seen.keep("endless", &alice, Duration::MAX);
        assert_eq!(seen.find("live"), Some(alice));
        assert_eq!(
            (seen.find("over"), seen.find("other"), seen.find("endless")),
            (None, None, None)
        );
    }

    #[test]
    fn there_are_never_too_many() {
        let (seen, alice) = (VerifiedTokens::default(), Principal::from("alice"));
        let far = Duration::from_secs(1 << 40);
        for token in 0..VerifiedTokens::MOST + 10 {
            seen.keep(&token.to_string(), &alice, far);
        }
        assert!(seen.0.lock().len() <= VerifiedTokens::MOST);
        assert_eq!(seen.find(&(VerifiedTokens::MOST + 9).to_string()), Some(alice));
    }
}
