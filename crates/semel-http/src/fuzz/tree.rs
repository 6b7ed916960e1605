//! Generates JSON documents from bytes, so that small documents are common and failures shrink.

use std::collections::BTreeMap;

use serde_json::Value;

/// A document with its numbers as text.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Plain(&'static str),
    Text(&'static str),
    Array(Vec<Tree>),
    Object(BTreeMap<&'static str, Tree>),
}

/// Few numbers, so that two documents are often equal, and close to each other, so that rounding would show.
const PLAIN: &[&str] = &[
    "0",
    "-0",
    "0.0",
    "1",
    "1.0",
    "1e0",
    "12345678901234567890",
    "12345678901234567891",
    "9007199254740993",
    "0.1",
    "0.10000000000000000001",
    "1e400",
    "true",
    "false",
    "null",
];

/// Names and strings. Sorting by UTF-8 and by UTF-16 differs on the last two.
pub(super) const TEXTS: &[&str] = &[
    "", "a", "b", "0", "1", "01", "a/b", "~", "~1", "\"", "\\", "\n\u{1}", "null", "ü", "\u{ff21}",
    "😀",
];

/// Bytes as a sequence of decisions. After the last byte, every decision is zero.
pub(super) struct Choices<'a>(pub(super) std::slice::Iter<'a, u8>);

impl Choices<'_> {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % bound
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

impl Tree {
    pub(super) fn grow(choices: &mut Choices<'_>, depth: usize) -> Self {
        let kinds = if depth == 0 { 2 } else { 6 };
        match choices.below(kinds) {
            0 => Self::Plain(choices.one(PLAIN)),
            1 => Self::Text(choices.one(TEXTS)),
            2 => {
                let elements = choices.below(4);
                Self::Array((0..elements).map(|_| Self::grow(choices, depth - 1)).collect())
            }
            _ => {
                let members = choices.below(5);
                let mut member = || (choices.one(TEXTS), Self::grow(choices, depth - 1));
                Self::Object((0..members).map(|_| member()).collect())
            }
        }
    }

    /// The meaning of the document, in a form that compares numbers as text and ignores order.
    pub(super) fn meaning(&self) -> Value {
        match self {
            Self::Plain(text) => Value::from(format!("plain {text}")),
            Self::Text(text) => Value::from(format!("text {text}")),
            Self::Array(elements) => elements.iter().map(Self::meaning).collect(),
            Self::Object(members) => {
                members.iter().map(|(name, value)| (name.to_string(), value.meaning())).collect()
            }
        }
    }

    /// The document in one of its many spellings.
    pub(super) fn spell(&self, choices: &mut Choices<'_>, out: &mut String) {
        space(choices, out);
        match self {
            Self::Plain(text) => out.push_str(text),
            Self::Text(text) => quote(text, choices, out),
            Self::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    element.spell(choices, out);
                }
                out.push(']');
            }
            Self::Object(members) => spell_members(members, choices, out),
        }
        space(choices, out);
    }
}

fn spell_members(members: &BTreeMap<&str, Tree>, choices: &mut Choices<'_>, out: &mut String) {
    let mut members: Vec<_> = members.iter().collect();
    for at in 1..members.len() {
        members.swap(at, choices.below(at + 1));
    }
    out.push('{');
    for (at, (name, value)) in members.into_iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        space(choices, out);
        quote(name, choices, out);
        space(choices, out);
        out.push(':');
        value.spell(choices, out);
    }
    out.push('}');
}

fn space(choices: &mut Choices<'_>, out: &mut String) {
    out.push_str(choices.one(&["", "", "", " ", "\r\n", "\t"]));
}

fn quote(text: &str, choices: &mut Choices<'_>, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match (c, choices.below(3)) {
            ('"' | '\\' | '/', 0) => out.extend(['\\', c]),
            ('\n', 0) => out.push_str("\\n"),
            ('"' | '\\' | '\0'..='\x1f', _) | (_, 1) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
            (c, _) => out.push(c),
        }
    }
    out.push('"');
}
