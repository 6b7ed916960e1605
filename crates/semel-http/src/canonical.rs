//! Canonical JSON, with numbers as they were sent.
//!
//! Two bodies have the same canonical form if they differ only in the order of members, white space and escapes.
//! `1` and `1.0` differ: numbers are not parsed as doubles, which would make two neighbouring 20-digit ids equal.
//!
//! `serde_json` validates the whole body first, so that the code here only has to find where tokens end. Calling
//! `serde_json` again for each value would scan inner text once for each level of nesting, and one megabyte in 64
//! brackets would block a thread for a quarter of a second.

mod pointer;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, ops::Range};

use serde_json::value::RawValue;

pub(crate) use pointer::Pointer;
use pointer::PointerStep;

/// The deepest nesting of arrays and objects. It bounds the stack.
pub(crate) const MAX_DEPTH: usize = 64;

/// The canonical form of `body` without the values that the pointers name.
///
/// `None` if there is no canonical form and the raw bytes are compared: the body is not JSON, is nested deeper
/// than [`MAX_DEPTH`], names a member twice (readers disagree which one is used) or escapes half a surrogate
/// pair, which is not valid text.
pub(crate) fn canonical(body: &[u8], left_out: &[Pointer]) -> Option<Vec<u8>> {
    let document: &RawValue = serde_json::from_slice(body).ok()?;
    let left_out: Vec<_> = left_out.iter().map(Pointer::steps).collect();
    let mut canonicalizer =
        Canonicalizer { rest: document.get(), out: Vec::with_capacity(body.len()), depth: 0 };
    canonicalizer.value(&left_out)?;
    Some(canonicalizer.out)
}

/// Writes the canonical form of text that is known to be JSON.
struct Canonicalizer<'a> {
    rest: &'a str,
    out: Vec<u8>,
    depth: usize,
}

/// The name of a member and where it was written.
type Member<'a> = (Cow<'a, str>, Range<usize>);

impl<'a> Canonicalizer<'a> {
    fn value(&mut self, left_out: &[&[PointerStep]]) -> Option<()> {
        match self.peek()? {
            b'{' => self.nested([b'{', b'}'], |canonicalizer| canonicalizer.members(left_out)),
            b'[' => self.nested([b'[', b']'], |canonicalizer| canonicalizer.elements(left_out)),
            b'"' => self.string().map(drop),
            _ => self.scalar(),
        }
    }

    fn nested(
        &mut self,
        [open, close]: [u8; 2],
        inside: impl FnOnce(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        self.take(1)?;
        self.out.push(open);
        inside(self)?;
        // Every member and element ends in a comma. The last comma is removed.
        self.out.pop_if(|last| *last == b',');
        self.take(1)?;
        self.out.push(close);
        self.depth -= 1;
        Some(())
    }

    fn members(&mut self, left_out: &[&[PointerStep]]) -> Option<()> {
        let first = self.out.len();
        let mut members = Vec::new();
        while self.peek()? != b'}' {
            let start = self.out.len();
            let name = self.string()?;
            self.out.push(b':');
            self.item(start, below(left_out, |step| step.is_member(&name)))?;
            members.push((name, start - first..self.out.len() - first));
        }
        self.sort(first, members)
    }

    fn elements(&mut self, left_out: &[&[PointerStep]]) -> Option<()> {
        for at in 0.. {
            if self.peek()? == b']' {
                break;
            }
            let start = self.out.len();
            self.item(start, below(left_out, |step| step.is_element(at)))?;
        }
        Some(())
    }

    /// Writes a value and its comma, or removes everything after `start` if the value is left out.
    fn item(&mut self, start: usize, below: Below<'_>) -> Option<()> {
        match below {
            Below::Kept(left_out) => {
                self.value(&left_out)?;
                self.out.push(b',');
            }
            Below::LeftOut => {
                self.value(&[])?;
                self.out.truncate(start);
            }
        }
        Some(())
    }

    /// Sorts the members written since `first` by name.
    fn sort(&mut self, first: usize, mut members: Vec<Member<'_>>) -> Option<()> {
        if members.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Some(());
        }
        members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        let sent = self.out.split_off(first);
        for (_, range) in members {
            self.out.extend_from_slice(&sent[range]);
        }
        Some(())
    }

    /// Writes a string and returns its content.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let literal = self.take(literal_bytes(self.rest)?)?;
        if !literal.contains('\\') {
            self.out.extend_from_slice(literal.as_bytes());
            return literal.get(1..literal.len() - 1).map(Cow::Borrowed);
        }
        let text: String = serde_json::from_str(literal).ok()?;
        serde_json::to_writer(&mut self.out, &text).ok()?;
        Some(Cow::Owned(text))
    }

    /// A number, `true`, `false` or `null`, as sent.
    fn scalar(&mut self) -> Option<()> {
        let is_part = |byte: &u8| !is_separator(*byte) && !matches!(byte, b']' | b'}');
        let text = self.take(self.rest.bytes().take_while(is_part).count())?;
        self.out.extend_from_slice(text.as_bytes());
        Some(())
    }

    /// The first byte of the next token. In valid JSON the separators before it carry no information.
    fn peek(&mut self) -> Option<u8> {
        self.take(self.rest.bytes().take_while(|byte| is_separator(*byte)).count())?;
        self.rest.bytes().next()
    }

    fn take(&mut self, bytes: usize) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }
}

const fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b':' | b' ' | b'\t' | b'\n' | b'\r')
}

/// The length of the string literal that `text` starts with, quotes included.
fn literal_bytes(text: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text.get(at..)?.find(['"', '\\'])?;
        if text[at..].starts_with('"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// What the pointers mean for one member or element.
enum Below<'p> {
    LeftOut,
    /// Kept, with the pointers that lead to values inside it.
    Kept(Vec<&'p [PointerStep]>),
}

fn below<'p>(left_out: &[&'p [PointerStep]], is_here: impl Fn(&PointerStep) -> bool) -> Below<'p> {
    let mut inside = Vec::new();
    for pointer in left_out {
        match pointer {
            [step] if is_here(step) => return Below::LeftOut,
            [step, rest @ ..] if is_here(step) => inside.push(rest),
            _ => {}
        }
    }
    Below::Kept(inside)
}
