//! Handlers that do not answer as they should: each failure is named and tried again, and nothing is lost.

use crate::harness::{JetStream, ReceivedRequest, ScriptedReply, TestUpstream, WorkerSetup};

/// What an operator finds about an event whose handler always answers like this.
async fn letter(
    reply: impl Fn() -> ScriptedReply + Send + Sync + 'static,
    flags: &[(&str, &str)],
) -> serde_json::Value {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(move |_: &ReceivedRequest| reply()).await;
    let setup = WorkerSetup::new(&stream, &handler).flag("--max-attempts", "2");
    let setup = flags.iter().fold(setup, |setup, (name, value)| setup.flag(name, value));
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 2, "it was tried twice");
    worker.stop().await;
    let [letter] = &setup.listed().await[..] else { panic!("one letter") };
    assert_eq!(letter["reason"], "attempts_exhausted");
    letter.clone()
}

fn assert_error(letter: &serde_json::Value, words: &str) {
    assert!(letter["error"].as_str().unwrap().contains(words), "{words:?}: {letter}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let reply = || ScriptedReply::with(307, "Location: http://127.0.0.1:1/elsewhere\r\n", "");
    assert_error(&letter(reply, &[]).await, "redirects are not followed");
}

#[tokio::test]
async fn a_response_that_is_not_http_is_named() {
    let reply = || ScriptedReply::nothing().write("nonsense\r\n\r\n").close();
    assert_error(&letter(reply, &[]).await, "its response is not HTTP");
}

#[tokio::test]
async fn a_response_that_breaks_off_is_no_success() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort";
    let reply = move || ScriptedReply::nothing().write(head).close();
    assert_error(&letter(reply, &[]).await, "its response broke off");
}

#[tokio::test]
async fn a_connection_without_a_response_is_named() {
    let reply = || ScriptedReply::nothing().close();
    let letter = letter(reply, &[]).await;
    assert_error(&letter, "the handler failed");
}

#[tokio::test]
async fn a_handler_that_does_not_answer_is_given_up() {
    let reply = || ScriptedReply::nothing().stall();
    let letter = letter(reply, &[("--handler-timeout", "500ms")]).await;
    assert_error(&letter, "did not answer within 500ms (--handler-timeout)");
}

/// The head says success, but a body without an end never shows whether the response is whole.
#[tokio::test]
async fn a_body_without_an_end_is_given_up() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let reply = move || ScriptedReply::nothing().write(head).stall();
    let letter = letter(reply, &[("--handler-timeout", "500ms")]).await;
    assert_error(&letter, "did not answer within 500ms");
}

/// A large response is a success; only its body is not recorded.
#[tokio::test]
async fn a_large_response_is_a_success() {
    let stream = JetStream::new().await;
    let handler = TestUpstream::start(|_| ScriptedReply::ok(vec![b'x'; 3 << 20])).await;
    let setup = WorkerSetup::new(&stream, &handler);
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    assert_eq!(handler.count(), 1);
    assert!(setup.letter_files().is_empty());
    worker.stop().await;
}
