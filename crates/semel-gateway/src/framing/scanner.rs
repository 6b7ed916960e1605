//! Follows the bytes of a connection from message to message.

use super::{chunks::Chunks, head::Head};

/// Where a connection is. It reads along with hyper and spoils what must not be believed, so that
/// hyper answers 400 and closes.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
}

/// What the peer is in the middle of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Between,
    Head,
    Body,
}

#[derive(Debug)]
enum State {
    Head(Head),
    Body(u64),
    Chunks(Chunks),
    Spoiled,
}

/// How a message goes on after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    Chunked,
}

/// What a part of a message makes of the next byte.
pub(super) enum Step<T> {
    More,
    Done(T),
    /// Nobody may read on from here.
    Bad,
}

/// In no part of a head or of a chunk's frame: hyper stops at it.
const SPOILED: u8 = 0;

impl Scanner {
    pub(super) const fn new() -> Self {
        Self { state: State::Head(Head::new()) }
    }

    /// True once something must not be believed.
    pub(super) fn is_spoiled(&self) -> bool {
        matches!(self.state, State::Spoiled)
    }

    pub(super) fn phase(&self) -> Phase {
        match &self.state {
            State::Head(head) if head.is_empty() => Phase::Between,
            State::Head(_) | State::Spoiled => Phase::Head,
            State::Body(_) | State::Chunks(_) => Phase::Body,
        }
    }

    /// Reads along. From the first bad byte on, everything is spoiled.
    pub(super) fn scan(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &mut bytes[at..];
            at += match &mut self.state {
                State::Body(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = State::Head(Head::new());
                    }
                    taken
                }
                State::Head(head) => {
                    let (read, step) = head.read(rest);
                    match step {
                        Step::More => {}
                        Step::Done(Length::Known(0)) => self.state = State::Head(Head::new()),
                        Step::Done(Length::Known(length)) => self.state = State::Body(length),
                        Step::Done(Length::Chunked) => self.state = State::Chunks(Chunks::new()),
                        Step::Bad => self.spoil(&mut rest[read - 1..]),
                    }
                    read
                }
                State::Chunks(chunks) => {
                    let (read, step) = chunks.read(rest);
                    match step {
                        Step::More => {}
                        Step::Done(()) => self.state = State::Head(Head::new()),
                        Step::Bad => self.spoil(&mut rest[read - 1..]),
                    }
                    read
                }
                State::Spoiled => {
                    rest.fill(SPOILED);
                    rest.len()
                }
            };
        }
    }

    fn spoil(&mut self, rest: &mut [u8]) {
        rest.fill(SPOILED);
        self.state = State::Spoiled;
    }
}
