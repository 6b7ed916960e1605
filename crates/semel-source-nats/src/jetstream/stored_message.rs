//! A message as a stream stores it.

use std::time::SystemTime;

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use semel_core::{Header, Result};
use serde::Deserialize;

use super::rfc3339;
use crate::{error::unexpected_reply, headers};

/// A message as a stream stores it.
#[derive(Debug)]
pub(crate) struct StoredMessage {
    pub(crate) subject: String,
    pub(crate) sequence: u64,
    pub(crate) headers: Vec<Header>,
    pub(crate) payload: Bytes,
    pub(crate) published_at: SystemTime,
}

/// A message, encoded as in the reply.
#[derive(Deserialize)]
pub(super) struct RawMessage {
    subject: String,
    seq: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    hdrs: String,
    time: String,
}

impl RawMessage {
    pub(super) fn read(self) -> Result<StoredMessage> {
        let decoded = |text: &str| Base64::decode_vec(text).map_err(|_| unexpected_reply());
        Ok(StoredMessage {
            headers: headers::parse(&decoded(&self.hdrs)?),
            payload: decoded(&self.data)?.into(),
            published_at: rfc3339::parse(&self.time).ok_or_else(unexpected_reply)?,
            subject: self.subject,
            sequence: self.seq,
        })
    }
}
