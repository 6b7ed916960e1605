//! A chunked body, byte by byte.

use super::{head::is_token, scanner::Step};

/// A chunked body so far.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    /// What the present chunk is long, then what is left of it.
    left: u64,
    digits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    /// After a semicolon. Nobody needs extensions, but the standard has them.
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataLineEnd,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerEnd,
    End,
}

impl Chunks {
    /// More digits than any chunk needs would overflow.
    const MOST_DIGITS: u8 = 15;

    pub(super) const fn new() -> Self {
        Self { at: At::Size, left: 0, digits: 0 }
    }

    /// Reads on; says how far, and what the last byte read came to.
    pub(super) fn read(&mut self, bytes: &[u8]) -> (usize, Step<()>) {
        let mut place = 0;
        while place < bytes.len() {
            if self.at == At::Data {
                let rest = bytes.len() - place;
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest);
                self.left -= taken as u64;
                place += taken;
                if self.left == 0 {
                    self.at = At::DataEnd;
                }
                continue;
            }
            place += 1;
            match self.step(bytes[place - 1]) {
                Step::More => {}
                step => return (place, step),
            }
        }
        (place, Step::More)
    }

    fn step(&mut self, byte: u8) -> Step<()> {
        self.at = match (self.at, byte) {
            (At::Size, byte) if byte.is_ascii_hexdigit() && self.digits < Self::MOST_DIGITS => {
                self.digit(byte);
                At::Size
            }
            (At::Size, b';') if self.digits > 0 => At::Extension,
            (At::Size, b'\r') if self.digits > 0 => At::SizeEnd,
            (At::Extension, b'\r') => At::SizeEnd,
            (At::Extension, b'\t' | b' '..=b'~') => At::Extension,
            (At::SizeEnd, b'\n') if self.left == 0 => At::TrailerStart,
            (At::SizeEnd, b'\n') => At::Data,
            (At::DataEnd, b'\r') => At::DataLineEnd,
            (At::DataLineEnd, b'\n') => {
                *self = Self::new();
                At::Size
            }
            (At::TrailerStart, b'\r') => At::End,
            (At::TrailerStart | At::TrailerName, byte) if is_token(byte) => At::TrailerName,
            (At::TrailerName, b':') => At::TrailerValue,
            (At::TrailerValue, b'\r') => At::TrailerEnd,
            (At::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => At::TrailerValue,
            (At::TrailerEnd, b'\n') => At::TrailerStart,
            (At::End, b'\n') => return Step::Done(()),
            (
                At::Size
                | At::Extension
                | At::SizeEnd
                | At::Data
                | At::DataEnd
                | At::DataLineEnd
                | At::TrailerStart
                | At::TrailerName
                | At::TrailerValue
                | At::TrailerEnd
                | At::End,
                _,
            ) => return Step::Bad,
        };
        Step::More
    }

    fn digit(&mut self, byte: u8) {
        let value = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => byte.to_ascii_lowercase() - b'a' + 10,
        };
        self.left = self.left * 16 + u64::from(value);
        self.digits += 1;
    }
}
