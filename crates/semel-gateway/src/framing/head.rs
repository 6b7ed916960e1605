//! Scans a head byte by byte: lines end in CR LF only, and the length of the body is given once.

use super::scanner::{BodyLength, ScanStep};

/// The state of a head that is being scanned.
#[derive(Debug)]
pub(super) struct HeadScanner {
    at: HeadState,
    /// True from the first byte on, even of an empty line: empty lines count for the time of the head.
    begun: bool,
    length: FramingHeader,
    encoding: FramingHeader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadState {
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

/// A header that determines where the body ends: how often it occurred, and its last value.
#[derive(Debug)]
struct FramingHeader {
    occurrences: u8,
    name: &'static [u8],
    /// How much of the name the current line has matched; `None` if it is another header.
    matched: Option<usize>,
    value: [u8; FramingHeader::LONGEST],
    filled: usize,
}

impl HeadScanner {
    pub(super) const fn new() -> Self {
        Self {
            at: HeadState::Start,
            begun: false,
            length: FramingHeader::new(b"content-length"),
            encoding: FramingHeader::new(b"transfer-encoding"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.begun
    }

    /// Scans bytes. Returns how many, and the result of the last one.
    pub(super) fn read(&mut self, bytes: &[u8]) -> (usize, ScanStep<BodyLength>) {
        self.begun = true;
        for (place, byte) in bytes.iter().enumerate() {
            match self.step(*byte) {
                ScanStep::More => {}
                step => return (place + 1, step),
            }
        }
        (bytes.len(), ScanStep::More)
    }

    fn step(&mut self, byte: u8) -> ScanStep<BodyLength> {
        self.at = match (self.at, byte) {
            (HeadState::Start, b'\r') => HeadState::EmptyLine,
            (HeadState::EmptyLine, b'\n') => HeadState::Start,
            (HeadState::Start | HeadState::Line, b' '..=b'~') => HeadState::Line,
            (HeadState::Line, b'\r') => HeadState::LineEnd,
            (HeadState::LineEnd | HeadState::ValueEnd, b'\n') => HeadState::LineStart,
            (HeadState::LineStart, b'\r') => HeadState::End,
            (HeadState::LineStart, byte) if is_token(byte) => {
                self.length.begin();
                self.encoding.begin();
                self.name(byte)
            }
            (HeadState::Name, b':') => {
                self.length.named();
                self.encoding.named();
                HeadState::Value
            }
            (HeadState::Name, byte) if is_token(byte) => self.name(byte),
            (HeadState::Value, b'\r') => HeadState::ValueEnd,
            (HeadState::Value, b'\t' | b' '..=b'~' | 0x80..) => {
                self.length.value(byte);
                self.encoding.value(byte);
                HeadState::Value
            }
            (HeadState::End, b'\n') => return self.end(),
            (
                HeadState::Start
                | HeadState::EmptyLine
                | HeadState::Line
                | HeadState::LineEnd
                | HeadState::LineStart
                | HeadState::Name
                | HeadState::Value
                | HeadState::ValueEnd
                | HeadState::End,
                _,
            ) => return ScanStep::Bad,
        };
        ScanStep::More
    }

    fn name(&mut self, byte: u8) -> HeadState {
        self.length.name(byte);
        self.encoding.name(byte);
        HeadState::Name
    }

    /// The length of the body, if it is unambiguous. Two lengths are refused even if they agree: well-behaved clients
    /// do not send two.
    fn end(&self) -> ScanStep<BodyLength> {
        let length = match (self.length.occurrences, self.encoding.occurrences) {
            (0, 0) => Some(BodyLength::Known(0)),
            (1, 0) => decimal(self.length.trimmed_value()).map(BodyLength::Known),
            (0, 1) if self.encoding.trimmed_value().eq_ignore_ascii_case(b"chunked") => {
                Some(BodyLength::Chunked)
            }
            _ => None,
        };
        length.map_or(ScanStep::Bad, ScanStep::Done)
    }
}

impl FramingHeader {
    /// The longest valid value: the digits of a length, or `chunked`.
    const LONGEST: usize = 20;

    const fn new(name: &'static [u8]) -> Self {
        Self { occurrences: 0, name, matched: None, value: [0; Self::LONGEST], filled: 0 }
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
            self.occurrences = self.occurrences.saturating_add(1);
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
            // White space at the end is not part of the value; any other byte makes it too long.
            None if is_space => {}
            None => self.value[0] = b'?',
        }
    }

    fn trimmed_value(&self) -> &[u8] {
        self.value[..self.filled].trim_ascii_end()
    }
}

/// A number of digits only: no sign, no list.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // The largest values have a special meaning inside hyper.
    (length < u64::MAX - 2).then_some(length)
}

/// True for the bytes of a header name.
pub(super) const fn is_token(byte: u8) -> bool {
    matches!(byte,
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*'
        | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}
