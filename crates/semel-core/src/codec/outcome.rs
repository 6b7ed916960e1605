//! The outcome as bytes, compressed when large.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    COMPRESS_ABOVE, Packed, corrupt,
    wire::{WireReader, WireWriter},
};
use crate::{Body, Failure, Head, Header, Outcome, Result};

/// The largest outcome that is decompressed: above any limit that a policy may set, and a bound for hostile bytes.
pub(super) const MAX_UNPACKED: usize = 64 * 1024 * 1024;

const ZSTD_LEVEL: i32 = 1;

pub(super) fn pack(outcome: &Outcome) -> Packed {
    let plain = write(outcome);
    // A sealed outcome was compressed before it was encrypted.
    if plain.len() > COMPRESS_ABOVE
        && !outcome.is_sealed()
        && let Ok(small) = zstd::bulk::compress(&plain, ZSTD_LEVEL)
        && small.len() + 8 < plain.len()
    {
        let mut out = WireWriter::with_capacity(8 + small.len());
        out.u64(plain.len() as u64);
        out.raw(&small);
        return Packed { bytes: out.finish(), compressed: true };
    }
    Packed { bytes: plain, compressed: false }
}

pub(super) fn unpack(bytes: Bytes, compressed: bool) -> Result<Arc<Outcome>> {
    let plain = if compressed { inflate(bytes)? } else { bytes };
    Ok(Arc::new(read(WireReader::new(plain))?))
}

fn inflate(mut bytes: Bytes) -> Result<Bytes> {
    let length = WireReader::new(bytes.clone()).u64()?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_UNPACKED {
        return Err(corrupt("its outcome claims to be absurdly large"));
    }
    let plain = zstd::bulk::decompress(&bytes.split_off(8), length)
        .map_err(|_| corrupt("its outcome cannot be decompressed"))?;
    if plain.len() == length { Ok(plain.into()) } else { Err(corrupt("its outcome is cut short")) }
}

fn write(outcome: &Outcome) -> Bytes {
    let mut out = WireWriter::with_capacity(outcome.size());
    match outcome.as_failure() {
        None => out.u8(0),
        Some(failure) => {
            out.u8(1);
            out.text(&failure.kind);
            out.text(&failure.message);
        }
    }
    write_head(&mut out, outcome.head());
    match outcome.body() {
        Body::Kept(bytes) => {
            out.u8(0);
            out.bytes(bytes);
        }
        Body::Omitted { length } => {
            out.u8(1);
            out.u64(*length);
        }
    }
    out.finish()
}

fn write_head(out: &mut WireWriter, head: Option<&Head>) {
    let Some(head) = head else { return out.u8(0) };
    out.u8(if head.trailers.is_empty() { 1 } else { 2 });
    out.u16(head.status.unwrap_or(0));
    match &head.content_type {
        None => out.u8(0),
        Some(media_type) => {
            out.u8(1);
            out.text(media_type);
        }
    }
    write_headers(out, &head.headers);
    if !head.trailers.is_empty() {
        write_headers(out, &head.trailers);
    }
}

fn write_headers(out: &mut WireWriter, headers: &[Header]) {
    out.count(headers.len() as u64);
    for header in headers {
        out.text(&header.name);
        out.bytes(&header.value);
    }
}

fn read(mut input: WireReader) -> Result<Outcome> {
    let failure = match input.u8()? {
        0 => None,
        1 => Some(Failure { kind: input.text()?, message: input.text()? }),
        _ => return Err(corrupt("its outcome is neither success nor failure")),
    };
    let head = read_head(&mut input)?;
    let body = match input.u8()? {
        0 => Body::Kept(input.bytes()?),
        1 => Body::Omitted { length: input.u64()? },
        _ => return Err(corrupt("its body is neither kept nor omitted")),
    };
    input.end()?;
    Ok(Outcome::from_parts(failure, head, body))
}

fn read_head(input: &mut WireReader) -> Result<Head> {
    let has_trailers = match input.u8()? {
        0 => return Ok(Head::default()),
        1 => false,
        2 => true,
        _ => return Err(corrupt("its head is neither there nor absent")),
    };
    let status = Some(input.u16()?).filter(|status| *status != 0);
    let content_type = match input.u8()? {
        0 => None,
        1 => Some(input.text()?),
        _ => return Err(corrupt("its content type is neither there nor absent")),
    };
    let headers = read_headers(input)?;
    let trailers = if has_trailers { read_headers(input)? } else { Vec::new() };
    Ok(Head { status, content_type, headers, trailers })
}

fn read_headers(input: &mut WireReader) -> Result<Vec<Header>> {
    // No capacity is reserved: a wrong count must run out of bytes, not of memory.
    let mut headers = Vec::new();
    for _ in 0..input.count()? {
        headers.push(Header { name: input.text()?, value: input.bytes()? });
    }
    Ok(headers)
}
