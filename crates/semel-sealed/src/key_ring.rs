//! The key ring: the current seal keys, shared by all stores of a process, which can be changed at run time.

use std::sync::Arc;

use parking_lot::RwLock;
use semel_core::{Error, Result};

use crate::seal_keys::SealKeys;

/// The current seal keys. Clones share them.
#[derive(Clone, Debug)]
pub struct KeyRing(Arc<RwLock<Arc<SealKeys>>>);

impl KeyRing {
    /// A ring with these keys.
    #[must_use]
    pub fn new(keys: SealKeys) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(keys))))
    }

    /// The current keys.
    #[must_use]
    pub fn keys(&self) -> Arc<SealKeys> {
        self.0.read().clone()
    }

    /// Uses these keys from now on, and returns the old ones. Calls that already run finish with the old keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) if a name has another key than before: data that the
    /// old key sealed would not open again. Nothing changes then.
    pub fn rotate(&self, keys: SealKeys) -> Result<Arc<SealKeys>> {
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
    use crate::seal_key::SealKey;

    #[test]
    fn a_name_cannot_get_another_key() {
        let (a, b) = (SealKey::random("a").unwrap().line(), SealKey::random("b").unwrap().line());
        let ring = KeyRing::new(SealKeys::parse(&a).unwrap());
        let other = SealKeys::parse(&SealKey::random("a").unwrap().line()).unwrap();
        let error = ring.rotate(other).unwrap_err().to_string();
        assert!(error.contains("a is another key") && ring.keys().seals_with() == "a", "{error}");
        let both = SealKeys::parse(&format!("{}\n{}", *b, *a)).unwrap();
        assert_eq!(ring.clone().rotate(both.clone()).unwrap().seals_with(), "a");
        assert_eq!(*ring.keys(), both);
    }
}
