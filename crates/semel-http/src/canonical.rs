//! JSON in one spelling, with numbers as they were sent.
//!
//! Two bodies get one text exactly when they say the same: members in another order, other white
//! space and other escapes do not count. `1` and `1.0` stay two, because no number passes through a
//! double, in which two neighbouring 20-digit ids are one.

mod pointer;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

pub(crate) use pointer::Pointer;
use pointer::Step;

/// Arrays and objects inside each other. The text of a value is scanned once per level around it, so
/// this bounds the work as well as the stack.
pub(crate) const MAX_DEPTH: usize = 64;

/// The one spelling of `body` without what the pointers name.
///
/// `None` when there is no such spelling, and the raw bytes have to decide: the body is not JSON, is
/// nested deeper than [`MAX_DEPTH`], names a member twice (readers disagree which one counts) or
/// escapes half a surrogate pair, which is no text.
pub(crate) fn canonical(body: &[u8], left_out: &[Pointer]) -> Option<Vec<u8>> {
    let document = serde_json::from_slice(body).ok()?;
    let left_out: Vec<_> = left_out.iter().map(Pointer::steps).collect();
    let mut writer = Writer { out: Vec::with_capacity(body.len()), depth: 0 };
    writer.value(document, &left_out)?;
    Some(writer.out)
}

struct Writer {
    out: Vec<u8>,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &RawValue, left_out: &[&[Step]]) -> Option<()> {
        let text = value.get();
        match text.as_bytes().first()? {
            b'{' => self.nested(|writer| writer.object(text, left_out)),
            b'[' => self.nested(|writer| writer.array(text, left_out)),
            b'"' => self.string(&serde_json::from_str::<Text<'_>>(text).ok()?.0),
            _ => {
                self.out.extend_from_slice(text.as_bytes());
                Some(())
            }
        }
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        write(self)?;
        self.depth -= 1;
        Some(())
    }

    fn object(&mut self, text: &str, left_out: &[&[Step]]) -> Option<()> {
        let Members(mut members) = serde_json::from_str(text).ok()?;
        members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        self.out.push(b'{');
        let mut comma = Comma::default();
        for (name, value) in members {
            let Some(below) = below(left_out, |step| step.is_member(&name)) else { continue };
            comma.write(&mut self.out);
            self.string(&name)?;
            self.out.push(b':');
            self.value(value, &below)?;
        }
        self.out.push(b'}');
        Some(())
    }

    fn array(&mut self, text: &str, left_out: &[&[Step]]) -> Option<()> {
        let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        self.out.push(b'[');
        let mut comma = Comma::default();
        for (at, element) in elements.into_iter().enumerate() {
            let Some(below) = below(left_out, |step| step.is_element(at)) else { continue };
            comma.write(&mut self.out);
            self.value(element, &below)?;
        }
        self.out.push(b']');
        Some(())
    }

    fn string(&mut self, text: &str) -> Option<()> {
        serde_json::to_writer(&mut self.out, text).ok()
    }
}

/// The pointers that go on below one member or element; `None` when one of them ends there.
fn below<'p>(left_out: &[&'p [Step]], is_here: impl Fn(&Step) -> bool) -> Option<Vec<&'p [Step]>> {
    let mut below = Vec::new();
    for pointer in left_out {
        match pointer {
            [step] if is_here(step) => return None,
            [step, rest @ ..] if is_here(step) => below.push(rest),
            _ => {}
        }
    }
    Some(below)
}

#[derive(Default)]
struct Comma {
    due: bool,
}

impl Comma {
    fn write(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.due, true) {
            out.push(b',');
        }
    }
}

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The members of an object as sent, with the text of each value unread. A map would lose doubles.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Text(name), value)) = map.next_entry()? {
            members.push((name, value));
        }
        Ok(Members(members))
    }
}
