//! The list of seal keys, and its text format.

use std::fmt;

use base64ct::{Base64, Encoding};
use semel_core::{Error, Result};
use zeroize::Zeroizing;

use crate::seal_key::SealKey;

/// Seal keys: the first one seals, all of them open.
///
/// Written as lines `NAME = KEY`, where the key is 32 bytes in base64. A line that begins with `#` is a
/// comment. Keys may also be separated by commas, for places where lines are hard to write, such as a variable.
///
/// ```
/// use semel_sealed::SealKeys;
///
/// let keys = SealKeys::parse(
///     "# the first one seals
///      2026-12 = AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
///      2026-11 = Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=",
/// )?;
/// assert_eq!(keys.seals_with(), "2026-12");
/// assert_eq!(format!("{keys:?}"), "SealKeys(2026-12, 2026-11)");
/// # Ok::<_, semel_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SealKeys {
    first: SealKey,
    others: Vec<SealKey>,
}

impl SealKeys {
    /// The largest number of keys. A rotation needs two.
    pub const MAX: usize = 64;

    /// Reads keys. Messages name the line and never show its content.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) with the line and the fix.
    pub fn parse(text: &str) -> Result<Self> {
        let mut keys: Vec<SealKey> = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            let parts = if line.starts_with('#') { "" } else { line };
            for part in parts.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let key = key(part).map_err(|what| at(number, what))?;
                if keys.iter().any(|other| other.id() == key.id()) {
                    return Err(at(number, "it has a name that another key has; rename one"));
                }
                keys.push(key);
            }
        }
        if keys.len() > Self::MAX {
            return Err(Error::invalid(format!(
                "seal keys: more than {}; remove those that nothing is sealed with",
                Self::MAX
            )));
        }
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or_else(|| Error::invalid(NONE))?;
        Ok(Self { first, others: keys.collect() })
    }

    /// The name of the key that seals.
    #[must_use]
    pub fn seals_with(&self) -> &str {
        self.first.id()
    }

    /// The names of all keys that open, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.all().map(SealKey::id)
    }

    pub(crate) const fn first(&self) -> &SealKey {
        &self.first
    }

    pub(crate) fn get(&self, id: &str) -> Option<&SealKey> {
        self.all().find(|key| key.id() == id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &SealKey> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

const NONE: &str =
    "seal keys: there is none; write a line NAME = KEY, as `semel seal-key` prints it";

/// One key, or the reason why it is invalid.
fn key(part: &str) -> Result<SealKey, &'static str> {
    const FORM: &str = "it is not NAME = KEY; write it as `semel seal-key` prints it";
    const NAME: &str = "its name is not 1 to 64 letters, digits, '.', '_' or '-'; rename it";
    const KEY: &str = "its key is not 32 bytes in base64; make one with `semel seal-key`";
    // Only the first `=` separates: base64 uses it as padding.
    let (id, text) = part.split_once('=').ok_or(FORM)?;
    let mut buffer = Zeroizing::new([0; SealKey::BYTES + 3]);
    let bytes = Base64::decode(text.trim(), &mut buffer[..]).map_err(|_| KEY)?;
    let bytes = Zeroizing::new(<[u8; SealKey::BYTES]>::try_from(bytes).map_err(|_| KEY)?);
    SealKey::new(id.trim(), bytes).map_err(|_| NAME)
}

fn at(line: usize, what: &str) -> Error {
    Error::invalid(format!("seal keys, line {line}: {what}"))
}

/// Names only.
impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKeys({})", self.ids().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn the_printed_line_of_a_key_can_be_read() {
        let (one, two) = (SealKey::random("a.1").unwrap(), SealKey::random("b-2").unwrap());
        for text in [
            format!("# ours, both\n\n  {}  \r\n{}\n", *one.line(), *two.line()),
            format!("{},{}", *one.line(), *two.line()),
        ] {
            let keys = SealKeys::parse(&text).unwrap();
            assert_eq!(keys.all().collect::<Vec<_>>(), [&one, &two]);
        }
    }

    #[test]
    fn an_error_names_the_line_and_does_not_show_its_content() {
        let secret = "c2VjcmV0";
        for (text, words) in [
            (String::new(), "there is none"),
            ("# a comment".into(), "there is none"),
            (format!("{secret}!"), "line 1: it is not NAME = KEY"),
            (format!("\na = {secret}"), "line 2: its key is not 32 bytes"),
            (format!("a = {KEY}{secret}"), "line 1: its key is not 32 bytes"),
            (format!("a = {}", &KEY[..40]), "line 1: its key is not 32 bytes"),
            (format!("a b = {KEY}"), "line 1: its name is not"),
            (format!("{} = {KEY}", "a".repeat(65)), "line 1: its name is not"),
            (format!("a = {KEY}\n#\na = {KEY}"), "line 3: it has a name that another key has"),
        ] {
            let error = SealKeys::parse(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains(secret) && !error.contains(&KEY[..8]), "{error}");
        }
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let lines = (0..=SealKeys::MAX).map(|it| format!("k{it} = {KEY}"));
        let error = SealKeys::parse(&lines.collect::<Vec<_>>().join("\n")).unwrap_err().to_string();
        assert!(error.contains("more than 64"), "{error}");
    }

    #[test]
    fn debug_does_not_show_a_key() {
        let keys = SealKeys::parse(&format!("a = {KEY}")).unwrap();
        assert_eq!(format!("{keys:?} {:?}", keys.first()), "SealKeys(a) SealKey(a)");
    }
}
