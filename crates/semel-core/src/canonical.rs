//! Canonical JSON for fingerprints: fields sorted, no whitespace, numbers exact.
//!
//! Not RFC 8785, which writes every number as a double, so that two neighbouring 64-bit ids become one.

use serde::Serialize;
use serde_json::Value;

use crate::{Error, Result};

/// The canonical JSON of `value`.
pub(crate) fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    // The encoder's own message may quote the value, so it is neither shown nor kept.
    let value = serde_json::to_value(value).map_err(|_| {
        Error::invalid(
            "fingerprint: the value has no JSON form; give map keys and integers over 64 bits as \
             strings",
        )
    })?;
    let mut out = Vec::new();
    write(&value, &mut out);
    Ok(out)
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        Value::Array(items) => {
            out.push(b'[');
            separated(items.iter(), out, write);
            out.push(b']');
        }
        Value::Object(fields) => {
            // Sorted here, since another crate may turn on the feature of serde_json that keeps the order.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            out.push(b'{');
            separated(fields.into_iter(), out, |(name, value), out| {
                out.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
                out.push(b':');
                write(value, out);
            });
            out.push(b'}');
        }
    }
}

fn separated<T>(
    items: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_sorted_at_every_depth_and_numbers_are_exact() {
        let value =
            json!({ "b": [1, { "z": null, "a": true }], "a": "q\"", "n": u64::MAX, "f": 1.5 });
        let text = String::from_utf8(to_vec(&value).unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"a":"q\"","b":[1,{"a":true,"z":null}],"f":1.5,"n":18446744073709551615}"#
        );
    }

    #[test]
    fn a_value_without_a_json_form_is_refused_with_advice() {
        let map = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(to_vec(&map).unwrap_err().to_string().contains("as strings"));
        assert!(to_vec(&u128::MAX).unwrap_err().to_string().contains("as strings"));
    }
}
