//! Where the key comes from if the client sends no header.

use std::{borrow::Cow, collections::HashMap, fmt, sync::Arc};

use bytes::Bytes;
use http::request::Parts;
use semel_core::Result;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{canonical::Pointer, problem::Problem};

type KeyFn = dyn Fn(&Parts, &Bytes) -> Option<String> + Send + Sync;

/// Finds a key in requests of clients that send no `Idempotency-Key`. The header wins when it is there.
#[derive(Clone)]
pub struct KeyFrom(KeyLocation);

#[derive(Clone)]
enum KeyLocation {
    JsonPointer(Arc<str>),
    Closure(Arc<KeyFn>),
}

impl KeyFrom {
    /// The string or 64-bit integer at a JSON pointer (RFC 6901) in the body, such as `/request_id`.
    pub fn json_pointer(pointer: impl Into<Arc<str>>) -> Self {
        Self(KeyLocation::JsonPointer(pointer.into()))
    }

    /// The key that the closure finds in head and body. `None` means that there is no key.
    pub fn closure(
        find: impl Fn(&Parts, &Bytes) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self(KeyLocation::Closure(Arc::new(find)))
    }

    /// Checks the pointer when the layer is built, before any request.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            KeyLocation::JsonPointer(pointer) => Pointer::parse(pointer).map(drop),
            KeyLocation::Closure(_) => Ok(()),
        }
    }

    /// The id, or `None` if there is none. An id that is there but cannot be used is refused, because the client
    /// meant to send a key.
    pub(crate) fn find(&self, parts: &Parts, body: &Bytes) -> Result<Option<String>, Problem> {
        match &self.0 {
            KeyLocation::JsonPointer(pointer) => at(pointer, body),
            KeyLocation::Closure(find) => Ok(find(parts, body)),
        }
    }
}

/// The id at `pointer`. Only the values on the way there are parsed, so other errors in the body do not matter.
fn at(pointer: &str, body: &Bytes) -> Result<Option<String>, Problem> {
    let Ok(json) = serde_json::from_slice::<&RawValue>(body) else { return Ok(None) };
    let found = follow(pointer, json).and_then(|found| found.map(id).transpose());
    found.map_err(|Unusable| {
        let detail = format!("{pointer} in the body must be a string or a 64-bit integer");
        Problem::key_invalid().detail(detail)
    })
}

/// There is a value, or may be one, that cannot be read as an id.
struct Unusable;

fn follow<'a>(pointer: &str, json: &'a RawValue) -> Result<Option<&'a RawValue>, Unusable> {
    let mut found = json;
    for step in pointer.split('/').skip(1) {
        let name = step.replace("~1", "/").replace("~0", "~");
        let next = match found.get().as_bytes().first() {
            Some(b'{') => read::<HashMap<Cow<'a, str>, &'a RawValue>>(found)?.remove(&*name),
            Some(b'[') => {
                let at = name.parse().unwrap_or(usize::MAX);
                read::<Vec<&'a RawValue>>(found)?.get(at).copied()
            }
            _ => None,
        };
        match next {
            Some(next) => found = next,
            None => return Ok(None),
        }
    }
    Ok((found.get() != "null").then_some(found))
}

fn id(value: &RawValue) -> Result<String, Unusable> {
    match value.get().as_bytes().first() {
        Some(b'"') => read(value),
        // Larger numbers are refused: they can be written in many ways.
        Some(b'-') => read::<i64>(value).map(|number| number.to_string()),
        _ => read::<u64>(value).map(|number| number.to_string()),
    }
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Unusable> {
    serde_json::from_str(json.get()).map_err(|_| Unusable)
}

impl fmt::Debug for KeyFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            KeyLocation::JsonPointer(pointer) => write!(f, "JsonPointer({pointer})"),
            KeyLocation::Closure(_) => f.write_str("Closure"),
        }
    }
}
