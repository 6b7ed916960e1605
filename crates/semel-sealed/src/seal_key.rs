//! A seal key: its name and its bytes.

use std::fmt;

use base64ct::{Base64, Encoding};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use semel_core::{Error, Result};
use zeroize::Zeroizing;

/// A key that seals, and its name. Dropping it wipes the bytes from memory. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey {
    id: Box<str>,
    bytes: Zeroizing<[u8; Self::BYTES]>,
}

impl SealKey {
    /// Bytes of a key.
    pub const BYTES: usize = 32;
    /// The longest name of a key.
    pub const MAX_ID_BYTES: usize = 64;

    /// A random key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) if the name is not 1 to 64 letters, digits, `.`, `_`
    /// or `-`.
    pub fn random(id: &str) -> Result<Self> {
        let mut bytes = Zeroizing::new([0; Self::BYTES]);
        rand::fill(&mut bytes[..]);
        Self::new(id, bytes)
    }

    pub(crate) fn new(id: &str, bytes: Zeroizing<[u8; Self::BYTES]>) -> Result<Self> {
        if !is_id(id) {
            return Err(Error::invalid(format!(
                "the name of a seal key is 1 to {} letters, digits, '.', '_' or '-'",
                Self::MAX_ID_BYTES
            )));
        }
        Ok(Self { id: id.into(), bytes })
    }

    /// The name, which is stored in the clear with all data that the key sealed.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The line for a key file. **It holds the key.**
    #[must_use]
    pub fn line(&self) -> Zeroizing<String> {
        let text = Zeroizing::new(Base64::encode_string(&*self.bytes));
        Zeroizing::new(format!("{} = {}", self.id, *text))
    }

    pub(crate) fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.bytes).into())
    }
}

pub(crate) fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=SealKey::MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(fits)
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", self.id)
    }
}
