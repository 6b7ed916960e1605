//! The response bodies of the test upstream: of known length, streamed in pieces, followed by trailers, or broken off.

use std::{fmt, io};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

use super::{
    instructions::{BodyContent, UpstreamInstructions},
    log::UpstreamLog,
};

/// The body of a response of the test upstream.
pub type TestUpstreamBody = UnsyncBoxBody<Bytes, BrokenOff>;

/// The error of a body that breaks off because the request's instructions say so.
#[derive(Debug)]
pub struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the upstream's body broke off")
    }
}

impl std::error::Error for BrokenOff {}

impl From<BrokenOff> for io::Error {
    fn from(broken: BrokenOff) -> Self {
        Self::other(broken)
    }
}

enum BodyPart {
    Data(Bytes),
    /// Waits until the gate between pieces has been opened this many times.
    WaitForOpenings(usize),
    Trailers(HeaderMap),
    Break,
}

/// Makes the response body of a run. A body in one piece has a known length, so that HTTP/1 sends `Content-Length`.
pub(super) fn response_body(
    instructions: &UpstreamInstructions,
    run: usize,
    log: &UpstreamLog,
) -> TestUpstreamBody {
    let mut pieces = pieces(&instructions.content, run);
    if pieces.len() == 1 && !instructions.breaks && instructions.trailers.is_empty() {
        return Full::new(pieces.remove(0)).map_err(|never| match never {}).boxed_unsync();
    }
    streamed(parts(instructions, pieces), log.clone(), instructions.piece_gate.clone())
}

fn pieces(content: &BodyContent, run: usize) -> Vec<Bytes> {
    match content {
        BodyContent::Numbered => vec![format!("{{\"run\":{run}}}").into()],
        BodyContent::Empty => vec![Bytes::new()],
        BodyContent::Binary => {
            // Begins with bytes that are no UTF-8, and ends with the number of the run.
            let number = u8::try_from(run).unwrap_or(u8::MAX);
            vec![(0..=u8::MAX).rev().chain([number]).collect::<Vec<_>>().into()]
        }
        BodyContent::Big(size) => vec![format!("run {run} ").bytes().cycle().take(*size).collect()],
        BodyContent::Events(count) => {
            (1..=*count).map(|event| format!("data: {run}.{event}\n\n").into()).collect()
        }
    }
}

fn parts(instructions: &UpstreamInstructions, pieces: Vec<Bytes>) -> Vec<BodyPart> {
    let pieces = if instructions.breaks { first_part(pieces) } else { pieces };
    let mut parts = Vec::new();
    for (index, piece) in pieces.into_iter().enumerate() {
        if instructions.piece_gate.is_some() && index > 0 {
            parts.push(BodyPart::WaitForOpenings(index));
        }
        parts.push(BodyPart::Data(piece));
    }
    if instructions.breaks {
        parts.push(BodyPart::Break);
    } else if !instructions.trailers.is_empty() {
        parts.push(BodyPart::Trailers(instructions.trailers.clone()));
    }
    parts
}

/// The first half of the pieces, at least one; half of the bytes if that is a single piece.
fn first_part(mut pieces: Vec<Bytes>) -> Vec<Bytes> {
    pieces.truncate(pieces.len().div_ceil(2));
    if let [only] = pieces.as_mut_slice() {
        only.truncate(only.len() / 2);
    }
    pieces
}

fn streamed(
    parts: Vec<BodyPart>,
    log: UpstreamLog,
    piece_gate: Option<String>,
) -> TestUpstreamBody {
    let frames = stream::iter(parts).filter_map(move |part| {
        let (log, piece_gate) = (log.clone(), piece_gate.clone());
        async move {
            match part {
                BodyPart::Data(data) => Some(Ok(Frame::data(data))),
                BodyPart::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                BodyPart::Break => Some(Err(BrokenOff)),
                BodyPart::WaitForOpenings(times) => {
                    let gate = piece_gate.expect("only a body with a gate waits for one");
                    log.wait_for_openings(&gate, times).await;
                    None
                }
            }
        }
    });
    StreamBody::new(frames.boxed()).boxed_unsync()
}
