//! Writes and reads big-endian fields. A length is compared with the bytes that are left before it is used.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::corrupt;
use crate::{Result, Span, Timestamp};

pub(super) struct WireWriter(BytesMut);

impl WireWriter {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(BytesMut::with_capacity(bytes))
    }

    pub(super) const fn behind(buffer: BytesMut) -> Self {
        Self(buffer)
    }

    pub(super) fn into_buffer(self) -> BytesMut {
        self.0
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.put_u8(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.put_u16(value);
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.put_u64(value);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Seven bits per byte, lowest first, so that most lengths take one byte.
    pub(super) fn count(&mut self, mut value: u64) {
        while value > 0x7f {
            self.u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.u8((value & 0x7f) as u8);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

/// The length of `bytes` with their count in front.
pub(super) fn encoded_len(bytes: &[u8]) -> usize {
    let bits = usize::BITS - bytes.len().leading_zeros();
    bits.div_ceil(7).max(1) as usize + bytes.len()
}

pub(super) struct WireReader(Bytes);

impl WireReader {
    pub(super) const fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    fn need(&self, bytes: usize) -> Result<()> {
        if self.0.len() < bytes { Err(corrupt("it ends too early")) } else { Ok(()) }
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.need(2)?;
        Ok(self.0.get_u16())
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.need(N)?;
        let mut array = [0; N];
        self.0.copy_to_slice(&mut array);
        Ok(array)
    }

    pub(super) fn time(&mut self) -> Result<Timestamp> {
        Ok(Timestamp::from_millis(self.u64()?))
    }

    pub(super) fn span(&mut self) -> Result<Span> {
        Ok(Span::from_millis(self.u64()?))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes> {
        let length = usize::try_from(self.count()?).unwrap_or(usize::MAX);
        self.need(length)?;
        Ok(self.0.split_to(length))
    }

    pub(super) fn count(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(corrupt("a length does not end"))
    }

    pub(super) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| corrupt("text is not UTF-8"))
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(corrupt("something follows its end")) }
    }
}
