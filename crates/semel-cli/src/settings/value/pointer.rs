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
        let trial = RoutePolicy::api().key_from(KeyFrom::json_pointer(text));
        trial.check().map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }
}

from_text!(JsonPointer, "a JSON pointer such as \"/request_id\"");

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_names_a_field() {
        assert!("/payment/id".parse::<JsonPointer>().is_ok());
        for bad in ["", "id", "/a~2"] {
            assert!(bad.parse::<JsonPointer>().unwrap_err().contains("JSON pointer"), "{bad}");
        }
    }
}
