//! Where the caller's id comes from when no header is sent.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::request::Parts;
use semel_core::{KeySource, KeyStrategy};

type Find = dyn Fn(&Parts, &Bytes) -> Option<String> + Send + Sync;

/// Finds a key in requests of clients that send no `Idempotency-Key`. The header wins when it is there.
#[derive(Clone)]
pub struct KeyFrom(Source);

#[derive(Clone)]
enum Source {
    JsonPointer(KeyStrategy),
    Closure(Arc<Find>),
}

impl KeyFrom {
    /// The string or 64-bit integer at a JSON pointer (RFC 6901) in the body, such as `/request_id`.
    pub fn json_pointer(pointer: impl Into<Arc<str>>) -> Self {
        Self(Source::JsonPointer(KeyStrategy::json_pointer(pointer)))
    }

    /// Whatever the closure finds in head and body; `None` means no key.
    pub fn closure(
        find: impl Fn(&Parts, &Bytes) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self(Source::Closure(Arc::new(find)))
    }

    pub(crate) fn find(&self, parts: &Parts, body: &Bytes) -> Option<String> {
        match &self.0 {
            Source::JsonPointer(pointer) => {
                pointer.render(&KeySource { body, ..KeySource::default() }).ok()
            }
            Source::Closure(find) => find(parts, body),
        }
    }
}

impl fmt::Debug for KeyFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::JsonPointer(pointer) => pointer.fmt(f),
            Source::Closure(_) => f.write_str("Closure"),
        }
    }
}
