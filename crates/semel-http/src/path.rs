//! The normal form of a path.

use std::{borrow::Cow, fmt::Write};

/// The normal form of a path (RFC 3986, section 6.2.2): an escaped letter, digit, `-`, `.`, `_` or `~` is
/// unescaped, the hex digits of other escapes are upper case, and bytes that are not ASCII are escaped. So
/// `/%61bc` becomes `/abc`, and `/a%2fb` becomes `/a%2Fb` but never `/a/b`.
///
/// ```
/// use semel_http::normal_path;
/// assert_eq!(normal_path("/%61bc"), "/abc");
/// assert_eq!(normal_path("/a%2fb"), "/a%2Fb");
/// ```
#[must_use]
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if path.is_ascii() && !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len());
    let mut bytes = path.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (byte, unescape(&path.as_bytes()[at..])) {
            (_, Some(unescaped)) => {
                bytes.nth(1);
                if unescaped.is_ascii_alphanumeric() || b"-._~".contains(&unescaped) {
                    text.push(char::from(unescaped));
                } else {
                    escape(&mut text, unescaped);
                }
            }
            (byte, None) if byte.is_ascii() => text.push(char::from(byte)),
            (byte, None) => escape(&mut text, byte),
        }
    }
    if text == path { Cow::Borrowed(path) } else { Cow::Owned(text) }
}

/// The byte that a percent sign and two hex digits stand for.
fn unescape(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn escape(text: &mut String, byte: u8) {
    write!(text, "%{byte:02X}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_normal_form() {
        for (path, text) in [
            ("/a", "/a"),
            ("/%61%2f%7e", "/a%2F~"),
            ("/%", "/%"),
            ("/%6", "/%6"),
            ("/%zz%", "/%zz%"),
            ("/%+1", "/%+1"),
            ("/%C3%a4", "/%C3%A4"),
            ("/ä%61", "/%C3%A4a"),
            ("/%ä", "/%%C3%A4"),
            ("//a//", "//a//"),
        ] {
            assert_eq!(normal_path(path), text, "{path}");
            assert_eq!(normal_path(text), text, "{path}: its normal form is not normal");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for path in ["/a", "/a%2Fb", "/%E2%82%AC"] {
            assert!(matches!(normal_path(path), Cow::Borrowed(_)), "{path}");
        }
    }
}
