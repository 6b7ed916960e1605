//! A head, byte by byte: lines end in CR LF and nothing else, and the length of what follows is said
//! once.

use super::scanner::{Length, Step};

/// A head so far.
#[derive(Debug)]
pub(super) struct Head {
    at: At,
    /// True from the first byte on, be it of an empty line: those take time, too.
    begun: bool,
    length: Field,
    encoding: Field,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first line. Empty lines are allowed here, and nowhere else.
    Start,
    EmptyLine,
    Line,
    LineEnd,
    LineStart,
    Name,
    Value,
    ValueEnd,
    End,
}

/// A header that says where the body ends: how often it came, and its last value.
#[derive(Debug)]
struct Field {
    seen: u8,
    name: &'static [u8],
    /// How much of the name the present line has matched; `None`: it is another one.
    matched: Option<usize>,
    value: [u8; Field::LONGEST],
    filled: usize,
}

impl Head {
    pub(super) const fn new() -> Self {
        Self {
            at: At::Start,
            begun: false,
            length: Field::new(b"content-length"),
            encoding: Field::new(b"transfer-encoding"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.begun
    }

    /// Reads on; says how far, and what the last byte read came to.
    pub(super) fn read(&mut self, bytes: &[u8]) -> (usize, Step<Length>) {
        self.begun = true;
        for (place, byte) in bytes.iter().enumerate() {
            match self.step(*byte) {
                Step::More => {}
                step => return (place + 1, step),
            }
        }
        (bytes.len(), Step::More)
    }

    fn step(&mut self, byte: u8) -> Step<Length> {
        self.at = match (self.at, byte) {
            (At::Start, b'\r') => At::EmptyLine,
            (At::EmptyLine, b'\n') => At::Start,
            (At::Start | At::Line, b' '..=b'~') => At::Line,
            (At::Line, b'\r') => At::LineEnd,
            (At::LineEnd | At::ValueEnd, b'\n') => At::LineStart,
            (At::LineStart, b'\r') => At::End,
            (At::LineStart, byte) if is_token(byte) => {
                self.length.begin();
                self.encoding.begin();
                self.name(byte)
            }
            (At::Name, b':') => {
                self.length.named();
                self.encoding.named();
                At::Value
            }
            (At::Name, byte) if is_token(byte) => self.name(byte),
            (At::Value, b'\r') => At::ValueEnd,
            (At::Value, b'\t' | b' '..=b'~' | 0x80..) => {
                self.length.value(byte);
                self.encoding.value(byte);
                At::Value
            }
            (At::End, b'\n') => return self.end(),
            (
                At::Start
                | At::EmptyLine
                | At::Line
                | At::LineEnd
                | At::LineStart
                | At::Name
                | At::Value
                | At::ValueEnd
                | At::End,
                _,
            ) => return Step::Bad,
        };
        Step::More
    }

    fn name(&mut self, byte: u8) -> At {
        self.length.name(byte);
        self.encoding.name(byte);
        At::Name
    }

    /// What follows, if that is said without a doubt. A length that is said twice is refused even if
    /// both agree: honest clients do not do that.
    fn end(&self) -> Step<Length> {
        let length = match (self.length.seen, self.encoding.seen) {
            (0, 0) => Some(Length::Known(0)),
            (1, 0) => decimal(self.length.value_seen()).map(Length::Known),
            (0, 1) if self.encoding.value_seen().eq_ignore_ascii_case(b"chunked") => {
                Some(Length::Chunked)
            }
            _ => None,
        };
        length.map_or(Step::Bad, Step::Done)
    }
}

impl Field {
    /// The longest value that can be right: the digits of a length, or `chunked`.
    const LONGEST: usize = 20;

    const fn new(name: &'static [u8]) -> Self {
        Self { seen: 0, name, matched: None, value: [0; Self::LONGEST], filled: 0 }
    }

    fn begin(&mut self) {
        self.matched = Some(0);
    }

    fn name(&mut self, byte: u8) {
        self.matched = self
            .matched
            .filter(|at| self.name.get(*at) == Some(&byte.to_ascii_lowercase()))
            .map(|at| at + 1);
    }

    fn named(&mut self) {
        self.matched = self.matched.filter(|at| *at == self.name.len());
        if self.matched.is_some() {
            self.seen = self.seen.saturating_add(1);
            self.filled = 0;
        }
    }

    fn value(&mut self, byte: u8) {
        let is_space = matches!(byte, b' ' | b'\t');
        if self.matched.is_none() || (is_space && self.filled == 0) {
            return;
        }
        match self.value.get_mut(self.filled) {
            Some(place) => {
                *place = byte;
                self.filled += 1;
            }
            // White space at the end is none of the value; anything else makes it too long.
            None if is_space => {}
            None => self.value[0] = b'?',
        }
    }

    fn value_seen(&self) -> &[u8] {
        self.value[..self.filled].trim_ascii_end()
    }
}

/// Digits alone: no sign, no list.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // The largest values mean something else inside hyper.
    (length < u64::MAX - 2).then_some(length)
}

/// What names are made of.
pub(super) const fn is_token(byte: u8) -> bool {
    matches!(byte,
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*'
        | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}
