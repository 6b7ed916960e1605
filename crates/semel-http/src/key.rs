//! Parses the `Idempotency-Key` header into the caller's id.
//!
//! A key can be sent raw, as most clients do, or in double quotes, as the draft standard requires (a String of
//! RFC 9651). Both are read as the same id. An ambiguous value is refused.

mod parameters;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The longest id that is accepted, in bytes and without quotes.
pub(crate) const MAX_BYTES: usize = 255;

/// A key as the client sent it.
#[derive(Debug)]
pub(crate) struct SentKey<'a> {
    /// The caller's id: 1 to [`MAX_BYTES`] visible ASCII characters. Borrowed unless it had escapes.
    pub(crate) id: Cow<'a, str>,
    /// The header value, which is echoed as the client sent it.
    pub(crate) value: &'a HeaderValue,
}

/// Why a header is no valid key. Its message says what to change and never quotes the value, which may be a
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadKey {
    Repeated,
    List,
    Empty,
    TooLong,
    NotVisible,
    StrayQuote,
    BadEscape,
    BadParameter,
}

/// The key in these headers, or `None` if the client sent none.
pub(crate) fn read<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<SentKey<'a>>, BadKey> {
    let mut lines = headers.get_all(name).iter();
    let Some(value) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(BadKey::Repeated);
    }
    let id = parse(printable(value)?)?;
    check(&id)?;
    Ok(Some(SentKey { id, value }))
}

fn printable(value: &HeaderValue) -> Result<&str, BadKey> {
    let text = value.to_str().map_err(|_| BadKey::NotVisible)?.trim_matches([' ', '\t']);
    // `to_str` lets tabs pass, and no part of a key or its parameters may hold one.
    if text.contains('\t') { Err(BadKey::NotVisible) } else { Ok(text) }
}

fn parse(text: &str) -> Result<Cow<'_, str>, BadKey> {
    let Some(quoted) = text.strip_prefix('"') else { return raw(text) };
    let (id, rest) = unquote(quoted)?;
    match parameters::skip(rest) {
        Some("") => Ok(id),
        Some(rest) if rest.trim_start().starts_with(',') => Err(BadKey::List),
        Some(_) | None => Err(BadKey::BadParameter),
    }
}

/// A `;` stays part of a raw key: parameters belong to structured fields, which a raw key is not, and
/// cutting there would turn two keys into one.
fn raw(text: &str) -> Result<Cow<'_, str>, BadKey> {
    match text.find([',', '"']) {
        Some(at) if text[at..].starts_with(',') => Err(BadKey::List),
        Some(_) => Err(BadKey::StrayQuote),
        None => Ok(Cow::Borrowed(text)),
    }
}

/// The string behind an opening quote, and what follows its closing one.
fn unquote(mut text: &str) -> Result<(Cow<'_, str>, &str), BadKey> {
    let mut id = Cow::Borrowed("");
    loop {
        let (plain, rest) = text.split_at(text.find(['"', '\\']).ok_or(BadKey::StrayQuote)?);
        id += plain;
        match rest.as_bytes() {
            [b'"', ..] => return Ok((id, &rest[1..])),
            [b'\\', b'"' | b'\\', ..] => id += &rest[1..2],
            _ => return Err(BadKey::BadEscape),
        }
        text = &rest[2..];
    }
}

fn check(id: &str) -> Result<(), BadKey> {
    match id.len() {
        0 => Err(BadKey::Empty),
        1..=MAX_BYTES if id.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(()),
        1..=MAX_BYTES => Err(BadKey::NotVisible),
        _ => Err(BadKey::TooLong),
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeated => "the key header was sent more than once; send it once",
            Self::List => {
                "the key header holds a list; send one key, and put it in double quotes if a comma \
                 is part of it"
            }
            Self::Empty => "the key is empty; send 1 to 255 visible ASCII characters, such as a UUID",
            Self::TooLong => "the key has more than 255 characters; send a shorter one, such as a UUID",
            Self::NotVisible => {
                "the key has a space or a character outside visible ASCII; send it encoded, for \
                 example as base64"
            }
            Self::StrayQuote => {
                "the key has an unpaired double quote; quote the whole key or none of it, and write \
                 a quote inside as \\\""
            }
            Self::BadEscape => {
                "the quoted key has a backslash that escapes nothing; only \\\" and \\\\ are escapes"
            }
            Self::BadParameter => {
                "something other than valid parameters follows the quoted key; end the header at the \
                 closing quote"
            }
        })
    }
}
