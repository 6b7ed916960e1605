//! Scans a chunked body byte by byte.

use super::{head::is_token, scanner::ScanStep};

/// The state of a chunked body that is being scanned.
#[derive(Debug)]
pub(super) struct ChunkScanner {
    at: ChunkState,
    /// The size of the current chunk, then the rest of it.
    left: u64,
    digits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    /// After a semicolon. Extensions are rare, but the standard allows them.
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

impl ChunkScanner {
    /// More digits would overflow, and no chunk needs them.
    const MOST_DIGITS: u8 = 15;

    pub(super) const fn new() -> Self {
        Self { at: ChunkState::Size, left: 0, digits: 0 }
    }

    /// Scans bytes. Returns how many, and the result of the last one.
    pub(super) fn read(&mut self, bytes: &[u8]) -> (usize, ScanStep<()>) {
        let mut place = 0;
        while place < bytes.len() {
            if self.at == ChunkState::Data {
                let rest = bytes.len() - place;
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest);
                self.left -= taken as u64;
                place += taken;
                if self.left == 0 {
                    self.at = ChunkState::DataEnd;
                }
                continue;
            }
            place += 1;
            match self.step(bytes[place - 1]) {
                ScanStep::More => {}
                step => return (place, step),
            }
        }
        (place, ScanStep::More)
    }

    fn step(&mut self, byte: u8) -> ScanStep<()> {
        self.at = match (self.at, byte) {
            (ChunkState::Size, byte)
                if byte.is_ascii_hexdigit() && self.digits < Self::MOST_DIGITS =>
            {
                self.digit(byte);
                ChunkState::Size
            }
            (ChunkState::Size, b';') if self.digits > 0 => ChunkState::Extension,
            (ChunkState::Size, b'\r') if self.digits > 0 => ChunkState::SizeEnd,
            (ChunkState::Extension, b'\r') => ChunkState::SizeEnd,
            (ChunkState::Extension, b'\t' | b' '..=b'~') => ChunkState::Extension,
            (ChunkState::SizeEnd, b'\n') if self.left == 0 => ChunkState::TrailerStart,
            (ChunkState::SizeEnd, b'\n') => ChunkState::Data,
            (ChunkState::DataEnd, b'\r') => ChunkState::DataLineEnd,
            (ChunkState::DataLineEnd, b'\n') => {
                *self = Self::new();
                ChunkState::Size
            }
            (ChunkState::TrailerStart, b'\r') => ChunkState::End,
            (ChunkState::TrailerStart | ChunkState::TrailerName, byte) if is_token(byte) => {
                ChunkState::TrailerName
            }
            (ChunkState::TrailerName, b':') => ChunkState::TrailerValue,
            (ChunkState::TrailerValue, b'\r') => ChunkState::TrailerEnd,
            (ChunkState::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => ChunkState::TrailerValue,
            (ChunkState::TrailerEnd, b'\n') => ChunkState::TrailerStart,
            (ChunkState::End, b'\n') => return ScanStep::Done(()),
            (
                ChunkState::Size
                | ChunkState::Extension
                | ChunkState::SizeEnd
                | ChunkState::Data
                | ChunkState::DataEnd
                | ChunkState::DataLineEnd
                | ChunkState::TrailerStart
                | ChunkState::TrailerName
                | ChunkState::TrailerValue
                | ChunkState::TrailerEnd
                | ChunkState::End,
                _,
            ) => return ScanStep::Bad,
        };
        ScanStep::More
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
