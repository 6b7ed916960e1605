//! Requests that the gateway answers itself, with bodies that look like requests: a body is never taken for a request,
//! and the next request is read only after it.

use crate::{
    framing::HIDDEN,
    harness::{ClientResponse, GatewayProcess, Setup, TestRequest, TestUpstream},
};

/// `--max-body` for the tests with a body that is too long.
const MAX_BODY: &str = "1KiB";

/// A gateway that refuses requests itself, and its upstream.
async fn stage(change: impl FnOnce(Setup) -> Setup) -> (TestUpstream, GatewayProcess) {
    let upstream = TestUpstream::counting().await;
    let gateway = change(Setup::to(&upstream)).start().await;
    (upstream, gateway)
}

/// A body that would run requests if it were taken for them.
fn smuggled(requests: usize) -> String {
    HIDDEN.repeat(requests)
}

/// The same request with a length, and in chunks.
fn both_ways(request: &TestRequest, body: &str) -> [Vec<u8>; 2] {
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let chunked = [request.clone().chunked().bytes(), chunks.into_bytes()].concat();
    [request.clone().body(body).bytes(), chunked]
}

/// Sends the request and a well-formed one after it. The first gets the expected response; the second gets its own
/// response, or the connection is closed and it never ran. Requests in the body never run.
async fn answered_early(
    (upstream, gateway): &(TestUpstream, GatewayProcess),
    bytes: Vec<u8>,
    is_right: impl Fn(&ClientResponse) -> bool,
) {
    let before = upstream.count();
    let mut connection = gateway.connection().await;
    connection.write([bytes, TestRequest::get("/next").bytes()].concat()).await;
    let first = connection.read_response().await.expect("a response to the first");
    assert!(is_right(&first) && first.whole, "{first:?}");
    let (next, ran) = match connection.read_response().await {
        Some(next) => {
            assert_eq!(next.status, 200, "{next:?}");
            assert!(next.text().starts_with("run "), "{next:?}");
            assert_ne!(first.header("connection"), Some("close"), "it was to be closed");
            connection.write(TestRequest::get("/next").header("Connection", "close").bytes()).await;
            (connection.read_response().await, 2)
        }
        None => (None, 0),
    };
    assert_eq!(next.map_or(200, |next| next.status), 200);
    connection.assert_closed("nothing but answers").await;
    assert_eq!(gateway.request(TestRequest::get("/next")).await.status, 200);
    let targets: Vec<_> =
        upstream.received().split_off(before).into_iter().map(|it| it.target).collect();
    assert_eq!(targets, vec!["/next"; ran + 1], "{first:?}");
}

fn problem(status: u16, name: &'static str) -> impl Fn(&ClientResponse) -> bool {
    move |response| (response.status, response.problem()) == (status, Some(name))
}

#[tokio::test]
async fn the_body_of_a_replayed_request_is_never_taken_for_a_request() {
    let stage = stage(|setup| setup).await;
    let [with_length, in_chunks] =
        both_ways(&TestRequest::post("/orders/7").key("a"), &smuggled(20));
    let mut connection = stage.1.connection().await;
    connection.write(&with_length).await;
    connection.read_response().await.unwrap().assert_ran("run 1");
    for bytes in [with_length, in_chunks] {
        answered_early(&stage, bytes, |response| {
            response.is_replay() && response.text() == "run 1"
        })
        .await;
    }
}

#[tokio::test]
async fn the_body_of_a_mismatch_is_never_taken_for_a_request() {
    for (status, text) in [(409, "409"), (422, "422")] {
        let stage = stage(|setup| setup.flag("--mismatch-status", text)).await;
        stage.1.request(TestRequest::charge("a")).await.assert_ran("run 1");
        for bytes in both_ways(&TestRequest::post("/orders/7").key("a"), &smuggled(20)) {
            answered_early(&stage, bytes, problem(status, "fingerprint-mismatch")).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_never_taken_for_a_request() {
    let stage = stage(|setup| setup.flag("--max-body", MAX_BODY)).await;
    for requests in [30, 10_000] {
        for bytes in both_ways(&TestRequest::post("/orders/7").key("a"), &smuggled(requests)) {
            answered_early(&stage, bytes, problem(413, "body-too-large")).await;
        }
    }
}

#[tokio::test]
async fn the_body_behind_a_bad_key_is_never_taken_for_a_request() {
    let stage = stage(|setup| setup).await;
    for key in ["", "a, b", "\"a", &"a".repeat(300)] {
        for bytes in both_ways(&TestRequest::post("/orders/7").key(key), &smuggled(20)) {
            answered_early(&stage, bytes, problem(400, "key-invalid")).await;
        }
    }
    let two = TestRequest::post("/orders/7").key("a").key("a");
    for bytes in both_ways(&two, &smuggled(20)) {
        answered_early(&stage, bytes, problem(400, "key-invalid")).await;
    }
}

#[tokio::test]
async fn the_body_without_a_key_is_never_taken_for_a_request() {
    let stage = stage(|setup| setup.switch("--require-key")).await;
    for requests in [20, 10_000] {
        for bytes in both_ways(&TestRequest::post("/orders/7"), &smuggled(requests)) {
            answered_early(&stage, bytes, problem(400, "key-missing")).await;
        }
    }
}

#[tokio::test]
async fn the_body_without_a_principal_is_never_taken_for_a_request() {
    let stage = stage(|setup| setup.flag("--principal", "authorization")).await;
    for bytes in both_ways(&TestRequest::post("/orders/7").key("a"), &smuggled(20)) {
        answered_early(&stage, bytes, problem(401, "principal-missing")).await;
    }
}

#[tokio::test]
async fn the_body_for_no_route_is_never_taken_for_a_request() {
    let upstream = TestUpstream::counting().await;
    let config = format!(
        "[upstreams.shop]\nurl = \"http://{}\"\n[[routes]]\nmatch = \"/next\"\nupstream = \"shop\"\n",
        upstream.address
    );
    let gateway = Setup::new().config(&config).start().await;
    let stage = (upstream, gateway);
    for request in [TestRequest::post("/orders/7"), TestRequest::post("/orders/7").key("a")] {
        for bytes in both_ways(&request, &smuggled(20)) {
            answered_early(&stage, bytes, problem(404, "no-route")).await;
        }
    }
}

/// The client sends the rest of the body after it has the response.
#[tokio::test]
async fn the_rest_of_a_refused_body_is_never_taken_for_a_request() {
    let stage = stage(|setup| setup.switch("--require-key")).await;
    let (upstream, gateway) = &stage;
    let mut connection = gateway.connection().await;
    let body = smuggled(20);
    connection.write(TestRequest::post("/orders/7").body(body.clone()).head()).await;
    let response = connection.read_response().await.unwrap();
    assert_eq!(response.problem(), Some("key-missing"), "{response:?}");
    connection.write(&body).await;
    connection.write(TestRequest::get("/next").bytes()).await;
    let next = connection.read_response().await;
    assert!(next.is_none_or(|next| next.text() == "run 1"));
    assert_eq!(gateway.request(TestRequest::get("/next")).await.status, 200);
    assert!(upstream.received().iter().all(|received| received.target == "/next"));
}

/// The response arrives before the client has sent the whole body.
#[tokio::test]
async fn a_body_is_not_taken_for_a_request_when_the_upstream_is_down() {
    let gone = crate::harness::Reserved::new();
    let url = format!("http://{}", gone.address());
    let gateway = Setup::new().flag("--upstream", &url).start().await;
    let mut connection = gateway.connection().await;
    let body = smuggled(20);
    connection.write(TestRequest::post("/orders/7").body(body.clone()).head()).await;
    connection.write(&body.as_bytes()[..100]).await;
    let response = connection.read_response().await.unwrap();
    assert_eq!((response.status, response.problem()), (502, Some("upstream-unreachable")));
    connection.write(&body.as_bytes()[100..]).await;
    // The connection is closed or takes the next request; the body gets no response of its own.
    connection.write(TestRequest::get("/next").header("Connection", "close").bytes()).await;
    let next = connection.read_response().await;
    assert!(next.is_none_or(|next| next.problem() == Some("upstream-unreachable")));
    connection.assert_closed("one answer for one request").await;
}
