//! Escapes NUL in texts, which PostgreSQL cannot store. Every other character stays as it is.

use std::borrow::Cow;

/// The escape character, rare in practice: followed by `0` it stands for NUL, followed by itself for itself.
const ESCAPE: char = '␛';

pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, ESCAPE]),
            c => out.push(c),
        }
    }
    out.into()
}

pub(crate) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains(ESCAPE) {
        return text.into();
    }
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            ESCAPE => out.push(chars.next().map_or(ESCAPE, |c| if c == '0' { '\0' } else { c })),
            c => out.push(c),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_has_a_nul() {
        for text in ["", "order-42", "a\0b", "\0", "␛", "␛0", "␛\0␛␛0", "ö\0"] {
            assert!(!escape(text).contains('\0'));
            assert_eq!(unescape(&escape(text)), text);
        }
    }
}
