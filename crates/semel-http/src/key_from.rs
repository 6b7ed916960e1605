//! Where the caller's id comes from when no header is sent.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::request::Parts;
use semel_core::Result;
use serde_json::Value;

use crate::{canonical::Pointer, problem::Problem};

type Find = dyn Fn(&Parts, &Bytes) -> Option<String> + Send + Sync;

/// Finds a key in requests of clients that send no `Idempotency-Key`. The header wins when it is there.
#[derive(Clone)]
pub struct KeyFrom(Source);

#[derive(Clone)]
enum Source {
    JsonPointer(Arc<str>),
    Closure(Arc<Find>),
}

impl KeyFrom {
    /// The string or 64-bit integer at a JSON pointer (RFC 6901) in the body, such as `/request_id`.
    pub fn json_pointer(pointer: impl Into<Arc<str>>) -> Self {
        Self(Source::JsonPointer(pointer.into()))
    }

    /// Whatever the closure finds in head and body; `None` means no key.
    pub fn closure(
        find: impl Fn(&Parts, &Bytes) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self(Source::Closure(Arc::new(find)))
    }

    /// Says what is wrong with a pointer before requests show it.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            Source::JsonPointer(pointer) => Pointer::parse(pointer).map(drop),
            Source::Closure(_) => Ok(()),
        }
    }

    /// The id, `None` where there is none. One that is there and cannot be used is refused: the client
    /// meant to send one.
    pub(crate) fn find(&self, parts: &Parts, body: &Bytes) -> Result<Option<String>, Problem> {
        match &self.0 {
            Source::JsonPointer(pointer) => at(pointer, body),
            Source::Closure(find) => Ok(find(parts, body)),
        }
    }
}

fn at(pointer: &str, body: &Bytes) -> Result<Option<String>, Problem> {
    let Ok(json) = serde_json::from_slice::<Value>(body) else { return Ok(None) };
    match json.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        // A number that is no 64-bit integer was rounded when it was read.
        Some(Value::Number(number)) if !number.is_f64() => Ok(Some(number.to_string())),
        Some(Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            let detail = format!("{pointer} in the body must be a string or a 64-bit integer");
            Err(Problem::key_invalid().detail(detail))
        }
    }
}

impl fmt::Debug for KeyFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::JsonPointer(pointer) => write!(f, "JsonPointer({pointer})"),
            Source::Closure(_) => f.write_str("Closure"),
        }
    }
}
