use super::*;

fn text(body: &str) -> Option<String> {
    without(body, &[])
}

fn without(body: &str, pointers: &[&str]) -> Option<String> {
    let pointers: Vec<_> = pointers.iter().map(|text| Pointer::parse(text).unwrap()).collect();
    canonical(body.as_bytes(), &pointers).map(|json| String::from_utf8(json).unwrap())
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn order_white_space_and_escapes_do_not_matter() {
    let one = text(r#"{"b":[1,{"z":null,"a":true}],"a":"\u0041\/\u00fc"}"#).unwrap();
    let same =
        text("\n{ \"a\" : \"A/ü\", \"b\" : [ 1, { \"a\":true ,\"z\": null}]\t}\r\n").unwrap();
    assert_eq!(one, same);
    assert_eq!(one, r#"{"a":"A/ü","b":[1,{"a":true,"z":null}]}"#);
}

#[test]
fn members_are_sorted_by_their_decoded_names() {
    assert_eq!(text(r#"{"b":1,"\u0061":2,"":3}"#).unwrap(), r#"{"":3,"a":2,"b":1}"#);
}

#[test]
fn the_order_of_elements_matters() {
    assert_ne!(text("[1,2]"), text("[2,1]"));
}

#[test]
fn numbers_stay_as_sent() {
    for number in ["12345678901234567890", "12345678901234567891", "1.0", "1e400", "-0", "1E+2"] {
        assert_eq!(text(number).unwrap(), number);
    }
}

#[test]
fn a_member_named_twice_has_no_canonical_form() {
    for body in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"b":{"":0,"":0}}]"#] {
        assert_eq!(text(body), None, "{body}");
    }
}

#[test]
fn half_a_surrogate_pair_is_no_text() {
    for body in [r#""\ud800""#, r#"{"\udc00":1}"#, r#""\ud800\u0041""#] {
        assert_eq!(text(body), None, "{body}");
    }
    assert_eq!(text(r#""\ud83d\ude00""#).unwrap(), "\"😀\"");
}

#[test]
fn a_body_that_is_not_one_json_document_has_no_canonical_form() {
    for body in ["", " ", "{", "1 2", "01", "+1", "{a:1}", "[1,]", "'a'", "NaN", "\u{feff}1"] {
        assert_eq!(text(body), None, "{body}");
    }
    assert_eq!(canonical(b"\"\xff\"", &[]), None);
}

#[test]
fn depth_is_bounded_without_using_up_the_stack() {
    assert_eq!(text(&nested(MAX_DEPTH)).unwrap(), nested(MAX_DEPTH));
    assert_eq!(text(&nested(MAX_DEPTH + 1)), None);
    assert_eq!(text(&nested(500_000)), None);
}

#[test]
fn a_left_out_field_does_not_matter() {
    let one = without(r#"{"id":7,"meta":{"sent_at":1,"n":2}}"#, &["/meta/sent_at"]);
    let same = without(r#"{"id":7,"meta":{"n":2,"sent_at":[2]}}"#, &["/meta/sent_at"]);
    let absent = without(r#"{"id":7,"meta":{"n":2}}"#, &["/meta/sent_at"]);
    let other = without(r#"{"id":8,"meta":{"n":2}}"#, &["/meta/sent_at"]);
    assert_eq!(one.as_deref(), Some(r#"{"id":7,"meta":{"n":2}}"#));
    assert_eq!((&one, &one), (&same, &absent));
    assert_ne!(one, other);
}

#[test]
fn a_pointer_names_elements_by_their_index_as_sent() {
    assert_eq!(without("[0,1,2,3]", &["/1", "/2"]).unwrap(), "[0,3]");
    assert_eq!(without(r#"[{"t":1,"k":2},{"t":3}]"#, &["/0/t"]).unwrap(), r#"[{"k":2},{"t":3}]"#);
    assert_eq!(without(r#"{"0":1,"00":2}"#, &["/0"]).unwrap(), r#"{"00":2}"#);
    assert_eq!(without("[1]", &["/00", "/-", "/7", "/0/x"]).unwrap(), "[1]");
}

#[test]
fn a_pointer_finds_a_name_however_it_is_escaped() {
    assert_eq!(without(r#"{"a\/b":1,"~":2,"":3}"#, &["/a~1b", "/~0", "/"]).unwrap(), "{}");
}

#[test]
fn wide_and_deep_bodies_cost_no_more_than_others() {
    let members: Vec<_> = (0..50_000).rev().map(|n| format!("\"{n}\":[{n}]")).collect();
    let wide = format!("{{{}}}", members.join(","));
    let both = format!("{}{wide}{}", "[".repeat(62), "]".repeat(62));
    assert_eq!(text(&both).unwrap().len(), both.len());
}
