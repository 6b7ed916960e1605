//! Scans the bytes of a connection from message to message.

use super::{chunks::ChunkScanner, head::HeadScanner};

/// Parses the same bytes as hyper, and overwrites those of an ambiguous message, so that hyper answers 400 and closes.
#[derive(Debug)]
pub(super) struct Scanner {
    state: ScanState,
}

/// What the client is sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanPhase {
    Between,
    Head,
    Body,
}

#[derive(Debug)]
enum ScanState {
    Head(HeadScanner),
    Body(u64),
    Chunks(ChunkScanner),
    Spoiled,
}

/// The length of the body after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    Known(u64),
    Chunked,
}

/// The result of scanning the next byte.
pub(super) enum ScanStep<T> {
    More,
    Done(T),
    /// The message is malformed or ambiguous from this byte on.
    Bad,
}

/// A byte that no head and no frame of a chunk may contain: hyper stops at it.
const SPOILED: u8 = 0;

impl Scanner {
    pub(super) const fn new() -> Self {
        Self { state: ScanState::Head(HeadScanner::new()) }
    }

    /// True after a malformed or ambiguous byte.
    pub(super) fn is_spoiled(&self) -> bool {
        matches!(self.state, ScanState::Spoiled)
    }

    pub(super) fn phase(&self) -> ScanPhase {
        match &self.state {
            ScanState::Head(head) if head.is_empty() => ScanPhase::Between,
            ScanState::Head(_) | ScanState::Spoiled => ScanPhase::Head,
            ScanState::Body(_) | ScanState::Chunks(_) => ScanPhase::Body,
        }
    }

    /// Scans the bytes. From the first bad byte on, all are overwritten.
    pub(super) fn scan(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &mut bytes[at..];
            at += match &mut self.state {
                ScanState::Body(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = ScanState::Head(HeadScanner::new());
                    }
                    taken
                }
                ScanState::Head(head) => {
                    let (read, step) = head.read(rest);
                    match step {
                        ScanStep::More => {}
                        ScanStep::Done(BodyLength::Known(0)) => {
                            self.state = ScanState::Head(HeadScanner::new())
                        }
                        ScanStep::Done(BodyLength::Known(length)) => {
                            self.state = ScanState::Body(length)
                        }
                        ScanStep::Done(BodyLength::Chunked) => {
                            self.state = ScanState::Chunks(ChunkScanner::new())
                        }
                        ScanStep::Bad => self.spoil(&mut rest[read - 1..]),
                    }
                    read
                }
                ScanState::Chunks(chunks) => {
                    let (read, step) = chunks.read(rest);
                    match step {
                        ScanStep::More => {}
                        ScanStep::Done(()) => self.state = ScanState::Head(HeadScanner::new()),
                        ScanStep::Bad => self.spoil(&mut rest[read - 1..]),
                    }
                    read
                }
                ScanState::Spoiled => {
                    rest.fill(SPOILED);
                    rest.len()
                }
            };
        }
    }

    fn spoil(&mut self, rest: &mut [u8]) {
        rest.fill(SPOILED);
        self.state = ScanState::Spoiled;
    }
}
