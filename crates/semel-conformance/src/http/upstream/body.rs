//! The bodies that the upstream answers with: sized, streamed step by step, followed by trailers, or broken off.

use std::{fmt, io};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

use super::{
    instructions::{BodyContent, UpstreamInstructions},
    log::RunLog,
};

/// The body of an answer of the upstream.
pub type TestUpstreamBody = UnsyncBoxBody<Bytes, BrokenOff>;

/// The error of a body that breaks off half-way, as instructed.
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
    Step(usize),
    Trailers(HeaderMap),
    Break,
}

/// The body that a run answers with. It has a length if possible, so that HTTP/1 sends it.
pub(super) fn of(
    instructions: &UpstreamInstructions,
    run: usize,
    log: &RunLog,
) -> TestUpstreamBody {
    let mut pieces = pieces(&instructions.content, run);
    if pieces.len() == 1 && !instructions.breaks && instructions.trailers.is_empty() {
        return Full::new(pieces.remove(0)).map_err(|never| match never {}).boxed_unsync();
    }
    streamed(parts(instructions, pieces), log.clone(), instructions.step.clone())
}

fn pieces(content: &BodyContent, run: usize) -> Vec<Bytes> {
    match content {
        BodyContent::Numbered => vec![format!("{{\"run\":{run}}}").into()],
        BodyContent::Empty => vec![Bytes::new()],
        BodyContent::Binary => {
            let last = u8::try_from(run).unwrap_or(u8::MAX);
            vec![(0..=u8::MAX).rev().chain([last]).collect::<Vec<_>>().into()]
        }
        BodyContent::Big(size) => vec![format!("run {run} ").bytes().cycle().take(*size).collect()],
        BodyContent::Events(count) => {
            (1..=*count).map(|event| format!("data: {run}.{event}\n\n").into()).collect()
        }
    }
}

fn parts(instructions: &UpstreamInstructions, pieces: Vec<Bytes>) -> Vec<BodyPart> {
    let pieces = if instructions.breaks { half(pieces) } else { pieces };
    let mut parts = Vec::new();
    for (place, piece) in pieces.into_iter().enumerate() {
        if instructions.step.is_some() && place > 0 {
            parts.push(BodyPart::Step(place));
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

fn half(mut pieces: Vec<Bytes>) -> Vec<Bytes> {
    pieces.truncate(pieces.len().div_ceil(2));
    if let [only] = pieces.as_mut_slice() {
        only.truncate(only.len() / 2);
    }
    pieces
}

fn streamed(parts: Vec<BodyPart>, log: RunLog, step: Option<String>) -> TestUpstreamBody {
    let frames = stream::iter(parts).filter_map(move |part| {
        let (log, step) = (log.clone(), step.clone());
        async move {
            match part {
                BodyPart::Data(data) => Some(Ok(Frame::data(data))),
                BodyPart::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                BodyPart::Break => Some(Err(BrokenOff)),
                BodyPart::Step(times) => {
                    log.opened(&step.expect("steps are written for a gate"), times).await;
                    None
                }
            }
        }
    });
    StreamBody::new(frames.boxed()).boxed_unsync()
}
