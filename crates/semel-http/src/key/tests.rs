use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;

const NAME: HeaderName = HeaderName::from_static("idempotency-key");

fn headers(lines: &[&str]) -> HeaderMap {
    let value = |line: &&str| HeaderValue::from_bytes(line.as_bytes()).unwrap();
    lines.iter().map(|line| (NAME, value(line))).collect()
}

fn id(line: &str) -> Result<String, BadKey> {
    read(&headers(&[line]), &NAME).map(|key| key.unwrap().id.into_owned())
}

#[test]
fn no_header_is_no_key() {
    assert!(read(&HeaderMap::new(), &NAME).unwrap().is_none());
}

#[test]
fn a_raw_and_a_quoted_key_are_one_key() {
    for (raw, quoted) in [
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "\"8e03978e-40d5-43e8-bc93-6894a57f9324\""),
        (r"a\b", r#""a\\b""#),
        ("a;b=1", r#""a;b=1""#),
        (" \tspaced\t ", r#"  "spaced"	"#),
    ] {
        assert_eq!(id(raw).unwrap(), id(quoted).unwrap());
    }
}

#[test]
fn a_key_without_escapes_is_borrowed() {
    for line in ["plain", "\"quoted\"", "\"with\";parameters"] {
        let headers = headers(&[line]);
        let key = read(&headers, &NAME).unwrap().unwrap();
        assert!(matches!(key.id, Cow::Borrowed(_)));
        assert_eq!(key.value, line);
    }
}

#[test]
fn quotes_commas_and_backslashes_are_fine_inside_quotes() {
    assert_eq!(id(r#""a,b""#).unwrap(), "a,b");
    assert_eq!(id(r#""a\"b\\""#).unwrap(), r#"a"b\"#);
    assert_eq!(id(r#""\"""#).unwrap(), "\"");
}

#[test]
fn a_semicolon_in_a_raw_key_is_part_of_it() {
    assert_eq!(id("a;b").unwrap(), "a;b");
    assert_ne!(id("a;b").unwrap(), id("a;c").unwrap());
}

#[test]
fn every_kind_of_parameter_is_read_and_ignored() {
    for parameters in [
        ";a",
        "; a",
        ";*a-b.c_d*",
        ";a=?0",
        ";a=-1",
        ";a=1.5",
        ";a=tok/en:x",
        ";a=\"s\\\"\"",
        ";a=:aGk=:",
        ";a=::",
        ";a=@1659578233",
        ";a=%\"f%c3%bc\"",
        ";a=1;b=2;  c",
    ] {
        assert_eq!(id(&format!("\"k\"{parameters}")).as_deref(), Ok("k"), "{parameters}");
    }
}

#[test]
fn what_follows_the_closing_quote_must_be_parameters() {
    for rest in [
        "x",
        "\"",
        ";",
        ";A",
        ";a=",
        ";a= 1",
        " ;a",
        ";a=?2",
        ";a=1.",
        ";a=1.2345",
        ";a=:a:",
        ";a=:aGk",
        ";a=@1.5",
        ";a=%\"%C3%BC\"",
        ";a=%\"%ff\"",
        ";a=\"open",
        ";a=1234567890123456",
    ] {
        assert_eq!(id(&format!("\"k\"{rest}")), Err(BadKey::BadParameter), "{rest}");
    }
}

#[test]
fn two_keys_are_refused_however_they_are_sent() {
    assert_eq!(read(&headers(&["a", "a"]), &NAME).unwrap_err(), BadKey::Repeated);
    for list in ["a,b", "a,", ",", r#""a", "b""#, r#""a";p=1 ,b"#] {
        assert_eq!(id(list), Err(BadKey::List), "{list}");
    }
}

#[test]
fn a_key_has_1_to_255_visible_characters() {
    let longest = "k".repeat(255);
    assert_eq!(id(&longest).unwrap(), longest);
    assert_eq!(id(&format!("\"{}\"", "\\\\".repeat(255))).unwrap().len(), 255);
    assert_eq!(id(&"k".repeat(256)), Err(BadKey::TooLong));
    for empty in ["", "  ", "\"\"", "\"\";a=1"] {
        assert_eq!(id(empty), Err(BadKey::Empty), "{empty}");
    }
    for hidden in ["a b", "\"a b\"", "a\tb", "\"a\tb\"", "schlüssel", "\"k\";a=\"\t\""] {
        assert_eq!(id(hidden), Err(BadKey::NotVisible), "{hidden}");
    }
}

#[test]
fn broken_quotes_and_escapes_are_refused() {
    for stray in ["\"", "\"open", "a\"b", "a\"", r#""open\""#] {
        assert_eq!(id(stray), Err(BadKey::StrayQuote), "{stray}");
    }
    for escape in [r#""\n""#, r#""\"#, r#""a\x""#] {
        assert_eq!(id(escape), Err(BadKey::BadEscape), "{escape}");
    }
}

#[test]
fn the_refusal_is_one_sentence_that_does_not_quote_the_value() {
    let message = id("s3cret,s3cret").unwrap_err().to_string();
    assert!(message.contains("; send one key") && !message.contains("s3cret"), "{message}");
}
