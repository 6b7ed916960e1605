//! Which headers of an outcome are replayed, and which are for the first caller alone.

use crate::http::{
    TestRequest, TestResponse,
    context::{CaseContext, KEY},
    routes::PLAIN,
    upstream::{
        LATIN1_VALUE,
        header::{BODY, HEADER, LATIN1, STREAM},
    },
};

pub(super) async fn descriptive_headers_are_replayed(case: CaseContext<'_>) {
    let kept = [
        ("location", "/orders/7"),
        ("content-location", "/orders/7.json"),
        ("content-language", "la"),
        ("content-encoding", "gzip"),
        ("etag", "\"7\""),
        ("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ];
    let request =
        kept.iter().fold(case.post(PLAIN).with(BODY, "binary"), |request, (name, value)| {
            request.with(HEADER, format!("{name}: {value}"))
        });
    let (first, again) = case.send_and_replay(&request).await;
    for (name, value) in kept {
        assert_eq!(first.text(name), Some(value), "the first caller gets {name}");
        assert_eq!(again.text(name), Some(value), "a replay keeps {name}");
    }
}

pub(super) async fn repeated_headers_are_replayed(case: CaseContext<'_>) {
    let links = ["</a>; rel=next", "</b>; rel=prev", "</a>; rel=next"];
    same_links(&case, &links).await;
}

pub(super) async fn commas_do_not_split_a_header(case: CaseContext<'_>) {
    let links = ["</a,b>; title=\"one, two\", </c>", "</d>"];
    same_links(&case, &links).await;
}

async fn same_links(case: &CaseContext<'_>, links: &[&str]) {
    let request = links
        .iter()
        .fold(case.post(PLAIN), |request, link| request.with(HEADER, format!("link: {link}")));
    let (first, again) = case.send_and_replay(&request).await;
    assert_eq!(first.lines("link"), links, "the first caller gets every line of a header");
    assert_eq!(again.lines("link"), links, "a replay keeps every line of a header as it was");
}

pub(super) async fn a_header_that_is_not_utf8_is_replayed(case: CaseContext<'_>) {
    let (first, again) = case.send_and_replay(&case.post(PLAIN).with(LATIN1, "link")).await;
    assert_eq!(first.lines("link"), [LATIN1_VALUE], "the first caller gets a header's bytes");
    assert_eq!(again.lines("link"), [LATIN1_VALUE], "a replay keeps a header's bytes");
}

pub(super) async fn cookies_are_for_the_first_caller(case: CaseContext<'_>) {
    let cookies = case.post(PLAIN).with(HEADER, "set-cookie: a=1").with(HEADER, "set-cookie: b=2");
    let (first, again) = case.send_and_replay(&cookies).await;
    assert_eq!(first.lines("set-cookie"), ["a=1", "b=2"], "the first caller gets its cookies");
    assert!(again.lines("set-cookie").is_empty(), "a cookie is never replayed");
}

pub(super) async fn what_belongs_to_one_exchange_is_not_replayed(case: CaseContext<'_>) {
    let fields = [
        "www-authenticate: Bearer",
        "proxy-authenticate: Basic",
        "date: Thu, 01 Jan 1970 00:00:00 GMT",
        "keep-alive: timeout=77",
        "access-control-allow-origin: https://a.example",
        "x-request-id: 77",
    ];
    let request =
        fields.iter().fold(case.post(PLAIN), |request, field| request.with(HEADER, field));
    let (_, again) = case.send_and_replay(&request).await;
    for field in fields {
        let (name, value) = field.split_once(": ").expect("written above");
        assert_ne!(again.text(name), Some(value), "{name} is never replayed");
    }
}

pub(super) async fn a_handler_cannot_set_the_reserved_headers(case: CaseContext<'_>) {
    let marks = [
        ("idempotency-body", "omitted"),
        ("idempotent-replayed", "true"),
        ("idempotency-stored", "false"),
        ("semel-status", "no-such-name"),
    ];
    let marked = |request: TestRequest| {
        marks.iter().fold(request, |request, (name, value)| {
            request.with(HEADER, format!("{name}: {value}"))
        })
    };
    let (first, again) = case.send_and_replay(&marked(case.post(PLAIN))).await;
    let stream = marked(case.post(PLAIN).set(KEY, format!("stream-{}", case.id)).set(STREAM, "3"));
    let streamed = stream.send().await;
    assert_eq!(streamed.body, "data: 2.1\n\ndata: 2.2\n\ndata: 2.3\n\n", "a stream passes whole");
    for (name, _) in marks {
        assert_eq!(first.text(name), None, "only the target sets {name} on a first answer");
        assert_eq!(streamed.text(name), None, "only the target sets {name} on a stream");
        let own = (name == "idempotent-replayed").then_some("true");
        assert_eq!(again.text(name), own, "only the target sets {name} on a replay");
    }
    super::assert_body_omitted(&streamed, &stream.send().await);
}

pub(super) async fn reply_headers_are_exposed_to_browsers(case: CaseContext<'_>) {
    let request = case.post(PLAIN).with("origin", "https://a.example");
    let own = "access-control-expose-headers: x-own";
    let (first, again) = case.send_and_replay(&request.with(HEADER, own)).await;
    assert!(exposes(&first, "x-own"), "the handler's own exposed headers stay: {first:?}");
    assert!(exposes(&first, "idempotency-key"), "a browser may read the echoed key: {first:?}");
    assert!(exposes(&again, "idempotent-replayed"), "a browser may read the marker: {again:?}");
}

pub(super) fn exposes(answer: &TestResponse, name: &str) -> bool {
    let lines = answer.lines("access-control-expose-headers");
    let names = lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names.map(<[u8]>::trim_ascii).any(|exposed| exposed.eq_ignore_ascii_case(name.as_bytes()))
}
