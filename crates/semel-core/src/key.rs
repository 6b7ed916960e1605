//! The key: the name of one logical operation. Stores see its hash and nothing else.

use std::{fmt, sync::Arc};

use crate::{
    Labels, Result, Scope,
    hash::{HashPurpose, HashSecret, hash, write_hex},
};

/// Names one logical operation: a scope and the caller's id. Made by [`Scope::key`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    scope: Scope,
    id: Arc<str>,
}

impl Key {
    /// The longest id that is accepted.
    pub const MAX_BYTES: usize = 1024;

    pub(crate) fn from_checked(scope: Scope, id: &str) -> Self {
        Self { scope, id: Arc::from(id) }
    }

    /// The scope this key was made in.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The same principal, operation and id in another namespace.
    ///
    /// # Errors
    ///
    /// As [`Scope::key`].
    pub fn in_namespace(&self, namespace: impl Into<String>) -> Result<Self> {
        let parts = &self.scope.0;
        Scope::new(namespace, parts.principal.clone(), &*parts.operation).key(&self.id)
    }

    /// The same id in another scope.
    ///
    /// # Errors
    ///
    /// As [`Scope::key`].
    pub fn in_scope(&self, scope: &Scope) -> Result<Self> {
        scope.key(&self.id)
    }

    /// The hash by which a store identifies this key.
    #[must_use]
    pub fn hash(&self, secret: Option<&HashSecret>) -> KeyHash {
        let parts = &self.scope.0;
        let (kind, principal) = parts.principal.parts();
        let parts = [
            parts.namespace.as_bytes(),
            kind,
            principal,
            parts.operation.as_bytes(),
            self.id.as_bytes(),
        ];
        KeyHash(hash(HashPurpose::Key, secret, &parts))
    }

    /// The readable parts a record keeps for operators.
    #[must_use]
    pub fn labels(&self, secret: Option<&HashSecret>) -> Labels {
        let parts = &self.scope.0;
        let principal = parts.principal.label(secret);
        Labels::new(&parts.namespace, &principal, &parts.operation, &self.id)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// The identity of a key inside a store. Shown as its first eight hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// A hash read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// All 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// All 64 hex digits, for stores and operators. Logs use [`Display`](fmt::Display).
    #[must_use]
    pub fn to_hex(&self) -> String {
        let mut hex = String::with_capacity(64);
        write_hex(&mut hex, &self.0).expect("writing to a String cannot fail");
        hex
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..4])
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({self})")
    }
}
