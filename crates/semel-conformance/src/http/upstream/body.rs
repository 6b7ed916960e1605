//! Bodies to order: sized, streamed step by step, followed by trailers, or broken off.

use std::{fmt, io};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

use super::{
    log::Log,
    orders::{Content, Orders},
};

/// What the upstream answers with.
pub type UpstreamBody = UnsyncBoxBody<Bytes, BrokenOff>;

/// The body was told to break off half-way.
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

enum Part {
    Data(Bytes),
    Step(usize),
    Trailers(HeaderMap),
    Break,
}

/// The body a run answers with. Whatever can be sized is, so that HTTP/1 sends its length.
pub(super) fn of(orders: &Orders, run: usize, log: &Log) -> UpstreamBody {
    let mut pieces = pieces(&orders.content, run);
    if pieces.len() == 1 && !orders.breaks && orders.trailers.is_empty() {
        return Full::new(pieces.remove(0)).map_err(|never| match never {}).boxed_unsync();
    }
    streamed(parts(orders, pieces), log.clone(), orders.step.clone())
}

fn pieces(content: &Content, run: usize) -> Vec<Bytes> {
    match content {
        Content::Numbered => vec![format!("{{\"run\":{run}}}").into()],
        Content::Empty => vec![Bytes::new()],
        Content::Binary => {
            let last = u8::try_from(run).unwrap_or(u8::MAX);
            vec![(0..=u8::MAX).rev().chain([last]).collect::<Vec<_>>().into()]
        }
        Content::Big(size) => vec![format!("run {run} ").bytes().cycle().take(*size).collect()],
        Content::Events(count) => {
            (1..=*count).map(|event| format!("data: {run}.{event}\n\n").into()).collect()
        }
    }
}

fn parts(orders: &Orders, pieces: Vec<Bytes>) -> Vec<Part> {
    let pieces = if orders.breaks { half(pieces) } else { pieces };
    let mut parts = Vec::new();
    for (place, piece) in pieces.into_iter().enumerate() {
        if orders.step.is_some() && place > 0 {
            parts.push(Part::Step(place));
        }
        parts.push(Part::Data(piece));
    }
    if orders.breaks {
        parts.push(Part::Break);
    } else if !orders.trailers.is_empty() {
        parts.push(Part::Trailers(orders.trailers.clone()));
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

fn streamed(parts: Vec<Part>, log: Log, step: Option<String>) -> UpstreamBody {
    let frames = stream::iter(parts).filter_map(move |part| {
        let (log, step) = (log.clone(), step.clone());
        async move {
            match part {
                Part::Data(data) => Some(Ok(Frame::data(data))),
                Part::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                Part::Break => Some(Err(BrokenOff)),
                Part::Step(times) => {
                    log.opened(&step.expect("steps are written for a gate"), times).await;
                    None
                }
            }
        }
    });
    StreamBody::new(frames.boxed()).boxed_unsync()
}
