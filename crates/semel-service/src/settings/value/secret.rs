//! Text that is never shown.

use std::{convert::Infallible, fmt, hint::black_box, str::FromStr};

use serde::{Deserialize, Deserializer, de::Error};

/// Text that may hold a secret: a token, or a URL with a password. It is checked later than other values, because
/// clap repeats a bad value in its error.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer);
        text.map(Self).map_err(|_| D::Error::custom("not text; write it in quotes"))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The bearer token of the admin listener.
#[derive(Clone)]
pub struct AdminToken(String);

impl AdminToken {
    /// The least length for a public listener: a client that can try often can guess a shorter token.
    pub const PUBLIC_BYTES: usize = 16;

    /// A token, or what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("has characters that no header can carry; use letters and digits".into());
        }
        if text.is_empty() {
            return Err("is empty; use random letters and digits, 32 or more".into());
        }
        Ok(Self(text.to_owned()))
    }

    /// True when it is too short for a listener that other machines can reach.
    pub fn is_short(&self) -> bool {
        self.0.len() < Self::PUBLIC_BYTES
    }

    /// Compares in constant time, so that the time does not show how much of `shown` is right.
    pub fn is(&self, shown: &[u8]) -> bool {
        let token = self.0.as_bytes();
        let differ = |sum, (one, other): (&u8, &u8)| black_box(sum | (one ^ other));
        token.len() == shown.len() && token.iter().zip(shown).fold(0, differ) == 0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_itself_and_is_never_shown() {
        let token = AdminToken::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in ["0123456789abcdeF", "0123456789abcde", "0123456789abcdef0", ""] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{token:?} {:?}", Secret("0123456789".into())).contains("0123"));
    }

    #[test]
    fn an_empty_or_unsendable_token_is_refused() {
        assert!(AdminToken::new("").unwrap_err().contains("is empty"));
        assert!(AdminToken::new("0123456789 abcdef").unwrap_err().contains("no header"));
        assert!(AdminToken::new("0123456789abcdef\n").unwrap_err().contains("no header"));
    }
}
