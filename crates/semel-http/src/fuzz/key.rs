//! Compares the parser of the key header with `sfv`, a parser of structured fields.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use sfv::{BareItem, FieldType, Item, Parser};

use super::{CASES, inputs::inputs};
use crate::key::{MAX_BYTES, read};

const NAME: HeaderName = HeaderName::from_static("idempotency-key");

const SEEDS: &[&str] = &[
    "8e03978e-40d5-43e8-bc93-6894a57f9324",
    "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"",
    "stripe-node-retry-1f0c",
    "1700000000000000000_aB-_9z",
    " \t padded \t ",
    "a;b=1",
    "a,b",
    r"back\slash",
    r#""a,b""#,
    r#""a b""#,
    r#""q\"u\\o""#,
    r#""open\""#,
    "\"\"",
    "\"\";a",
    "\"k\";a;b=?1;  c=?0",
    "\"k\";n=-123456789012345;d=123456789012.123",
    "\"k\";t=*tok/en:x;s=\"a\\\"b\"",
    "\"k\";b=:aGVsbG8=:;e=::;p=:aGk:",
    "\"k\";at=@1659578233;u=%\"f%c3%bc %e2%82%ac\"",
    "\"k\";u=%\"f%C3%BC\"",
    "\"a\", \"b\"",
];

/// The key that semel reads from one header line, or `None` if it is refused.
fn semel_key(line: &[u8]) -> Option<String> {
    let value = HeaderValue::from_bytes(line).ok()?;
    let headers = HeaderMap::from_iter([(NAME, value)]);
    read(&headers, &NAME).ok().map(|key| key.unwrap().id.into_owned())
}

/// The expected key: `sfv` reads a quoted key, every other line is a raw key.
fn expected(line: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line).ok()?.trim_matches([' ', '\t']);
    let id = if text.starts_with('"') {
        match Parser::new(text).parse::<Item>().ok()?.bare_item {
            BareItem::String(id) => id.as_str().to_owned(),
            other => panic!("a quote starts nothing but a string: {other:?}"),
        }
    } else if text.contains([',', '"']) {
        return None;
    } else {
        text.to_owned()
    };
    let is_key = (1..=MAX_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    is_key.then_some(id)
}

fn quoted(id: &str) -> String {
    Item::new(BareItem::String(id.to_owned().try_into().unwrap())).serialize()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_key_is_accepted_exactly_if_sfv_and_the_rules_accept_it(line in inputs(SEEDS)) {
        prop_assert_eq!(semel_key(&line), expected(&line));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES / 50))]

    #[test]
    fn every_visible_key_survives_quoting(id in "[!-~]{1,255}") {
        prop_assert_eq!(semel_key(quoted(&id).as_bytes()), Some(id));
    }

    #[test]
    fn a_raw_key_equals_the_same_key_in_quotes(id in "[!#-+--~]{1,60}") {
        prop_assert_eq!(semel_key(id.as_bytes()), semel_key(quoted(&id).as_bytes()));
        prop_assert_eq!(semel_key(id.as_bytes()), Some(id));
    }
}
