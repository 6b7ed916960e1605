//! Compares canonical JSON with `serde_json` values, which handle order and numbers independently.

use std::fmt;

use proptest::{collection::vec, prelude::*, sample::Index};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{
    CASES,
    inputs::inputs,
    tree::{Choices, TEXTS, Tree},
};
use crate::canonical::{MAX_DEPTH, Pointer, canonical};

const SEEDS: &[&str] = &[
    r#"{"b":[1,{"z":null,"a":true}],"a":"q\""}"#,
    "\n{ \"to\" : \"bob\",\t\"amount\" : 5.0 }\r\n",
    r#"{"a":1,"\u0061":2}"#,
    r#"{"":{"":{"":[]}},"~":{},"/":0}"#,
    r#"["\ud83d\ude00","\ud83d","\ude00","😀","\/\b\f\n\r\t\u0000"]"#,
    "[12345678901234567890,-0,1e400,1E-2,0.10,18446744073709551616]",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\
     [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[7]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\
     ]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    r#"{"a,b:c]":"}{][","\\\"":[true,false,null]}"#,
    "\"\u{2028}\u{7f}\u{e9}\"",
    "7",
    "{}",
];

/// A document as `serde_json` reads it, if no member is named twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(Strict(element)) = seq.next_element()? {
            elements.push(element);
        }
        Ok(elements.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, Strict(value))) = map.next_entry()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("named twice"));
            }
        }
        Ok(members.into())
    }
}

fn strict(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map(|Strict(value)| value).map_err(|error| error.to_string())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn agrees(body: &[u8]) -> Result<(), TestCaseError> {
    let Some(text) = canonical(body, &[]) else {
        prop_assert!(strict(body).map_or(true, |value| depth(&value) > MAX_DEPTH));
        return Ok(());
    };
    prop_assert_eq!(canonical(&text, &[]), Some(text.clone()));
    match strict(body) {
        Ok(value) => prop_assert_eq!(strict(&text), Ok(value)),
        // A number that no double holds is still a number.
        Err(error) => prop_assert!(error.contains("number out of range"), "{}", error),
    }
    Ok(())
}

fn grow(bytes: &[u8]) -> Tree {
    Tree::grow(&mut Choices(bytes.iter()), 3)
}

fn spell(tree: &Tree, style: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    tree.spell(&mut Choices(style.iter()), &mut text);
    text.into_bytes()
}

/// The meaning without the value at the pointer, removed by `serde_json`'s own pointers.
fn meaning_without(tree: &Tree, pointer: &str) -> Value {
    let mut value = tree.meaning();
    if value.pointer(pointer).is_none() {
        return value;
    }
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Array(elements) => drop(elements.remove(name.parse().unwrap())),
        Value::Object(members) => {
            drop(members.remove(&name.replace("~1", "/").replace("~0", "~")));
        }
        scalar => panic!("{scalar} has nothing inside"),
    }
    value
}

/// A pointer to a value in the document, or to a missing one.
fn pointer(value: &Value, choices: &mut Choices<'_>) -> String {
    let name = match value {
        Value::Array(elements) if !elements.is_empty() => choices.below(elements.len()).to_string(),
        Value::Object(members) if !members.is_empty() => {
            members.keys().nth(choices.below(members.len())).unwrap().clone()
        }
        _ => TEXTS[choices.below(TEXTS.len())].to_owned(),
    };
    let step = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    match value.pointer(&step) {
        Some(inside) if choices.below(2) == 1 => step + &pointer(inside, choices),
        Some(_) | None => step,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn canonical_json_has_the_meaning_that_serde_json_reads(body in inputs(SEEDS)) {
        agrees(&body)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES / 4))]

    #[test]
    fn every_spelling_of_a_document_has_one_canonical_form(
        tree in vec(any::<u8>(), 0..24), one in vec(any::<u8>(), 0..24), other in vec(any::<u8>(), 0..24),
    ) {
        let tree = grow(&tree);
        let text = canonical(&spell(&tree, &one), &[]);
        prop_assert!(text.is_some());
        prop_assert_eq!(text, canonical(&spell(&tree, &other), &[]));
    }

    #[test]
    fn two_documents_are_equal_exactly_if_they_differ_only_in_left_out_values(
        one in vec(0..20u8, 1..20), changes in vec((any::<Index>(), 0..20u8), 0..3),
        place in vec(any::<u8>(), 0..6), style in vec(any::<u8>(), 0..12),
    ) {
        let mut other = one.clone();
        for (at, byte) in changes {
            other[at.index(one.len())] = byte;
        }
        let (one, other) = (grow(&one), grow(&other));
        let pointer = pointer(&one.meaning(), &mut Choices(place.iter()));
        let left_out = [Pointer::parse(&pointer).unwrap()];
        let text = |tree, style| canonical(&spell(tree, style), &left_out);
        let equal = text(&one, &[]) == text(&other, &style);
        prop_assert_eq!(equal, meaning_without(&one, &pointer) == meaning_without(&other, &pointer));
    }
}
