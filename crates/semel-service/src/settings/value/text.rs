//! Deserializes a value from its text.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::de::{Deserializer, Error, Visitor};

/// Implements `Deserialize` for a type that has `FromStr`; the literal says what is expected.
macro_rules! from_text {
    ($type:ty, $expected:literal) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                super::text::deserialize(deserializer, $expected)
            }
        }
    };
}
pub(super) use from_text;

pub(super) fn deserialize<'de, D, T>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    deserializer.deserialize_any(TextVisitor { expected, value: PhantomData })
}

struct TextVisitor<T> {
    expected: &'static str,
    value: PhantomData<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    /// A number without quotes means the same as the digits in quotes: bytes or a status, or a duration without unit.
    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
