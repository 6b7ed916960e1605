//! Parses parameters after a quoted key (RFC 9651, 3.1.2). They have no meaning here and are ignored, but must be
//! valid: if the header has a typo, the key is not guessed.
//!
//! Each function parses one thing at the start of the text and returns the rest, or `None` if it is not there.
//! The text is printable ASCII.

use super::unquote;

/// Skips every `;name=value`.
pub(super) fn skip(mut text: &str) -> Option<&str> {
    while let Some(parameter) = text.strip_prefix(';') {
        text = name(parameter.trim_start_matches(' '))?;
        if let Some(assigned) = text.strip_prefix('=') {
            text = value(assigned)?;
        }
    }
    Some(text)
}

fn name(text: &str) -> Option<&str> {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c == '*').then(|| {
        text.trim_start_matches(|c: char| {
            c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c)
        })
    })
}

fn value(text: &str) -> Option<&str> {
    match text.as_bytes().first()? {
        b'"' => unquote(&text[1..]).ok().map(|(_, rest)| rest),
        b'?' => text.strip_prefix("?0").or_else(|| text.strip_prefix("?1")),
        b':' => byte_sequence(&text[1..]),
        b'@' => integer(&text[1..]),
        b'%' => display_string(text),
        b'-' | b'0'..=b'9' => number(text),
        b'*' | b'A'..=b'Z' | b'a'..=b'z' => Some(token(text)),
        _ => None,
    }
}

fn token(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c))
}

fn integer(text: &str) -> Option<&str> {
    let (digits, rest) = digits(text.strip_prefix('-').unwrap_or(text));
    (1..=15).contains(&digits).then_some(rest)
}

fn number(text: &str) -> Option<&str> {
    let (whole, rest) = digits(text.strip_prefix('-').unwrap_or(text));
    let Some(rest) = rest.strip_prefix('.') else { return integer(text) };
    let (fraction, rest) = digits(rest);
    ((1..=12).contains(&whole) && (1..=3).contains(&fraction)).then_some(rest)
}

fn digits(text: &str) -> (usize, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (text.len() - rest.len(), rest)
}

/// Base64 with full, partial or no padding: the RFC asks parsers to accept all three.
fn byte_sequence(text: &str) -> Option<&str> {
    let (encoded, rest) = text.split_once(':')?;
    let symbols = encoded.trim_end_matches('=');
    let padding = encoded.len() - symbols.len();
    let most = match symbols.len() % 4 {
        0 => 0,
        2 => 2,
        3 => 1,
        _ => return None,
    };
    let all = symbols.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
    (all && padding <= most).then_some(rest)
}

/// `%"..."`: UTF-8 in which bytes may be written as `%` and two lower-case hexadecimal digits.
fn display_string(text: &str) -> Option<&str> {
    let (encoded, rest) = text.strip_prefix("%\"")?.split_once('"')?;
    let mut parts = encoded.split('%');
    let mut bytes = Vec::from(parts.next()?);
    for part in parts {
        let (hex, plain) = part.split_at_checked(2)?;
        if !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        bytes.extend_from_slice(plain.as_bytes());
    }
    std::str::from_utf8(&bytes).is_ok().then_some(rest)
}
