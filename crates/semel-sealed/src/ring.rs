//! The key ring: shared by all who seal and open, and changed under way.

use std::sync::Arc;

use parking_lot::RwLock;
use semel_core::{Error, Result};

use crate::keys::Keys;

/// Holds the keys of this moment. Clones are one.
#[derive(Clone, Debug)]
pub struct KeyRing(Arc<RwLock<Arc<Keys>>>);

impl KeyRing {
    /// A ring with these keys.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(keys))))
    }

    /// The keys of this moment.
    #[must_use]
    pub fn keys(&self) -> Arc<Keys> {
        self.0.read().clone()
    }

    /// Takes these keys from now on, and answers those it had. Calls under way end with the old ones.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a name stands for another key than
    /// before: what is sealed under it would not open again. Nothing changes then.
    pub fn rotate(&self, keys: Keys) -> Result<Arc<Keys>> {
        let mut current = self.0.write();
        let changed = keys.all().find(|key| current.get(key.id()).is_some_and(|old| old != *key));
        if let Some(key) = changed {
            return Err(Error::invalid(format!(
                "seal keys: {} is another key than before; give a new key a new name",
                key.id()
            )));
        }
        Ok(std::mem::replace(&mut *current, Arc::new(keys)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SealKey;

    #[test]
    fn a_name_never_stands_for_another_key() {
        let (a, b) = (SealKey::random("a").unwrap().line(), SealKey::random("b").unwrap().line());
        let ring = KeyRing::new(Keys::parse(&a).unwrap());
        let other = Keys::parse(&SealKey::random("a").unwrap().line()).unwrap();
        let error = ring.rotate(other).unwrap_err().to_string();
        assert!(error.contains("a is another key") && ring.keys().seals_with() == "a", "{error}");
        let both = Keys::parse(&format!("{}\n{}", *b, *a)).unwrap();
        assert_eq!(ring.clone().rotate(both.clone()).unwrap().seals_with(), "a");
        assert_eq!(*ring.keys(), both);
    }
}
