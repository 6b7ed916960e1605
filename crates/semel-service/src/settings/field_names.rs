//! The field names of a struct, and the name that is closest to a misspelt one.

use serde::{
    de::{DeserializeOwned, Deserializer, Visitor, value::Error},
    forward_to_deserialize_any,
};

/// The names of the fields of `T` as they are written.
pub(super) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // A struct passes the names of its fields to its deserializer; this one stores them and fails.
    let _ = T::deserialize(FieldNameProbe(&mut fields));
    fields
}

struct FieldNameProbe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNameProbe<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(serde::de::Error::custom("only reads the names"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("not a struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The name that is closest to `word`, if one is similar enough.
pub(super) fn closest_name<'a>(
    word: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let distance = |name: &&str| strsim::damerau_levenshtein(&plain(word), &plain(name));
    let near = |name: &&str| distance(name) <= name.len().div_ceil(4);
    names.into_iter().filter(near).min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{policy::PolicyFields, raw::RouteTarget};

    #[test]
    fn names_are_those_of_the_file() {
        assert_eq!(fields_of::<RouteTarget>(), ["match", "upstream"]);
        assert!(fields_of::<PolicyFields>().contains(&"on_lost_owner"));
    }

    #[test]
    fn a_misspelt_name_is_recognised_and_an_unrelated_one_is_not() {
        let names = fields_of::<PolicyFields>();
        for (word, name) in [
            ("leese", "lease"),
            ("retension", "retention"),
            ("max-body", "max_body"),
            ("maxbody", "max_body"),
            ("requirekey", "require_key"),
            ("Mode", "mode"),
        ] {
            assert_eq!(closest_name(word, names.iter().copied()), Some(name));
        }
        assert_eq!(closest_name("colour", names.iter().copied()), None);
    }
}
