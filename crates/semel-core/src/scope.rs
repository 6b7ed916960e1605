//! The scope of a key: namespace, principal and operation. Two scopes never share a key.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::{
    Error, Key, Result,
    hash::{HashPurpose, HashSecret, hash, write_hex},
};

/// The authenticated caller. It is part of every key, so that no caller gets the outcome of another.
///
/// ```
/// use semel_core::Principal;
/// let user = Principal::from("user-7");
/// let token = Principal::credential("Bearer s3cr3t"); // kept as a keyed hash only
/// let anonymous = Principal::Anonymous; // has to be explicit
/// # let _ = (user, token, anonymous);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Principal {
    /// All callers share one key space. Right for internal callers, a leak on a public route.
    Anonymous,
    /// A verified name, such as a user or tenant id.
    Named(Arc<str>),
    /// A credential that must not be stored; only its keyed hash is.
    Credential(Arc<str>),
}

impl Principal {
    /// The longest name or credential that is accepted.
    pub const MAX_BYTES: usize = 8 * 1024;

    /// A principal that is identified by a secret, such as a bearer token.
    pub fn credential(secret: impl Into<Arc<str>>) -> Self {
        Self::Credential(secret.into())
    }

    fn check(&self) -> Result<()> {
        match self {
            Self::Anonymous => Ok(()),
            Self::Named(name) => check_part("principal", name, Self::MAX_BYTES),
            Self::Credential(secret) if secret.is_empty() => Err(Error::invalid(
                "principal: the credential is empty; use Principal::Anonymous on purpose instead",
            )),
            Self::Credential(secret) => check_length("principal", secret, Self::MAX_BYTES),
        }
    }

    /// Tag and text that go into the key's hash. The tag keeps a name from being taken for a credential.
    pub(crate) fn parts(&self) -> (&'static [u8], &[u8]) {
        match self {
            Self::Anonymous => (b"anonymous", b""),
            Self::Named(name) => (b"named", name.as_bytes()),
            Self::Credential(secret) => (b"credential", secret.as_bytes()),
        }
    }

    /// The principal as operators see it.
    pub(crate) fn label(&self, secret: Option<&HashSecret>) -> Cow<'_, str> {
        match self {
            Self::Anonymous => Cow::Borrowed(""),
            Self::Named(name) => Cow::Borrowed(name),
            Self::Credential(credential) => {
                // Always keyed: if the deployment has no secret, by a secret of this process.
                let secret = secret.unwrap_or_else(|| HashSecret::of_process());
                let digest = hash(HashPurpose::Principal, Some(secret), &[credential.as_bytes()]);
                let mut label = String::from("credential:");
                write_hex(&mut label, &digest[..16]).expect("writing to a String cannot fail");
                Cow::Owned(label)
            }
        }
    }
}

impl From<&str> for Principal {
    fn from(name: &str) -> Self {
        Self::Named(Arc::from(name))
    }
}

impl From<String> for Principal {
    fn from(name: String) -> Self {
        Self::Named(Arc::from(name))
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Named(_) => "Named([redacted])",
            Self::Credential(_) => "Credential([redacted])",
        })
    }
}

/// Namespace, principal and operation. Clones are cheap: keep one and make keys from it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope(pub(crate) Arc<ScopeParts>);

#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ScopeParts {
    pub(crate) namespace: Box<str>,
    pub(crate) principal: Principal,
    pub(crate) operation: Box<str>,
}

impl Scope {
    /// The longest namespace or operation that is accepted.
    pub const MAX_BYTES: usize = 512;

    /// Names a scope. Nothing is checked until a key is made from it.
    ///
    /// ```
    /// use semel_core::{Principal, Scope};
    /// let scope = Scope::new("payments", Principal::from("user-7"), "charge");
    /// let key = scope.key("order-42")?;
    /// # Ok::<(), semel_core::Error>(())
    /// ```
    pub fn new(
        namespace: impl Into<String>,
        principal: impl Into<Principal>,
        operation: impl Into<String>,
    ) -> Self {
        Self(Arc::new(ScopeParts {
            namespace: namespace.into().into_boxed_str(),
            principal: principal.into(),
            operation: operation.into().into_boxed_str(),
        }))
    }

    /// The key of one logical operation in this scope.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a part is empty, too long or holds
    /// control characters; the message names the part.
    pub fn key(&self, id: impl AsRef<str>) -> Result<Key> {
        let id = id.as_ref();
        check_part("namespace", &self.0.namespace, Self::MAX_BYTES)?;
        check_part("operation", &self.0.operation, Self::MAX_BYTES)?;
        self.0.principal.check()?;
        check_part("key", id, Key::MAX_BYTES)?;
        Ok(Key::from_checked(self.clone(), id))
    }

    /// The namespace, such as the name of the service.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// The operation: a route template, a consumer, a function.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.0.operation
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("namespace", &self.0.namespace)
            .field("principal", &self.0.principal)
            .field("operation", &self.0.operation)
            .finish()
    }
}

fn check_part(name: &str, text: &str, max: usize) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{name}: is empty; it needs at least one character")));
    }
    check_length(name, text, max)?;
    // Control characters would reach terminals and logs through labels, and no honest id has them.
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(Error::invalid(format!(
            "{name}: has a control character at byte {at}; send it encoded, for example as base64"
        ))),
        None => Ok(()),
    }
}

fn check_length(name: &str, text: &str, max: usize) -> Result<()> {
    match text.len() {
        length if length > max => Err(Error::invalid(format!(
            "{name}: has {length} bytes, {max} are allowed; use a content hash for longer ids"
        ))),
        _ => Ok(()),
    }
}
