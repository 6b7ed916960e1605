//! JSON pointers.

use std::{fmt, str::FromStr};

use semel::http::{KeyFrom, RoutePolicy};

use super::text::from_text;

/// A field of the body, such as `/request_id` (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPointer(pub(crate) String);

impl FromStr for JsonPointer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(['$', '#']) {
            return Err(match pointer_of(text) {
                Some(pointer) => {
                    format!("{text:?} is no JSON pointer (RFC 6901); write {pointer:?}")
                }
                None => format!(
                    "{text:?} is no JSON pointer (RFC 6901); name one field, such as \"/request_id\""
                ),
            });
        }
        let trial = RoutePolicy::api().key_from(KeyFrom::json_pointer(text));
        trial.check().map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }
}

from_text!(JsonPointer, "a JSON pointer such as \"/request_id\"");

/// The pointer that a JSONPath such as `$.payment['id'][0]`, or a fragment such as `#/payment/id`, means.
fn pointer_of(text: &str) -> Option<String> {
    if let Some(pointer) = text.strip_prefix('#') {
        return pointer.starts_with('/').then(|| pointer.to_owned());
    }
    let mut rest = text.strip_prefix('$')?;
    let mut pointer = String::new();
    while !rest.is_empty() {
        let name;
        (name, rest) = match rest.strip_prefix('[') {
            Some(inside) => {
                let (name, rest) = inside.split_once(']')?;
                (name.trim_matches(['\'', '"']), rest)
            }
            None => {
                let inside = rest.strip_prefix('.')?;
                inside.split_at(inside.find(['.', '[']).unwrap_or(inside.len()))
            }
        };
        // A wildcard or a filter names many fields.
        if name.is_empty() || name.contains(['*', '?', '@', ':', ',']) {
            return None;
        }
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
    }
    (!pointer.is_empty()).then_some(pointer)
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_json_path_shows_the_pointer() {
        for (path, pointer) in [
            ("$.request_id", "\"/request_id\""),
            ("$.payment['id']", "\"/payment/id\""),
            ("$[\"a/b\"].lines[0].id", "\"/a~1b/lines/0/id\""),
            ("#/payment/id", "\"/payment/id\""),
            ("$", "\"/request_id\""),
            ("$..id", "name one field"),
            ("$.lines[*].id", "name one field"),
        ] {
            let error = path.parse::<JsonPointer>().unwrap_err();
            assert!(error.contains(pointer), "{path}: {error}");
        }
    }

    #[test]
    fn a_pointer_names_a_field() {
        assert!("/payment/id".parse::<JsonPointer>().is_ok());
        for bad in ["", "id", "/a~2"] {
            assert!(bad.parse::<JsonPointer>().unwrap_err().contains("JSON pointer"), "{bad}");
        }
    }
}
