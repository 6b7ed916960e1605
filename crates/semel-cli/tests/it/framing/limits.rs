//! The limits of a head.

use super::FramingStage;
use crate::harness::TestRequest;

const TOO_MUCH: usize = 1 << 20;

#[tokio::test]
async fn a_header_that_is_too_long_is_refused() {
    let stage = FramingStage::set().await;
    let request = TestRequest::get("/orders").header("X-A", &"a".repeat(TOO_MUCH));
    stage.refuses(request.bytes(), &[400, 431]).await;
}

#[tokio::test]
async fn too_many_headers_are_refused() {
    let stage = FramingStage::set().await;
    let mut request = TestRequest::get("/orders");
    for number in 0..5_000 {
        request = request.header(&format!("X-{number}"), "a");
    }
    stage.refuses(request.bytes(), &[400, 431]).await;
}

#[tokio::test]
async fn a_target_that_is_too_long_is_refused() {
    let stage = FramingStage::set().await;
    let request = TestRequest::get(&format!("/{}", "a".repeat(TOO_MUCH)));
    stage.refuses(request.bytes(), &[400, 414, 431]).await;
}

#[tokio::test]
async fn a_head_without_an_end_is_refused() {
    let stage = FramingStage::set().await;
    let bytes = format!("GET /orders HTTP/1.1\r\n{}", "X-A: 1\r\n".repeat(TOO_MUCH / 8));
    stage.refuses(bytes, &[400, 431]).await;
    stage.refuses_somehow("a".repeat(TOO_MUCH), &[400, 414, 431]).await;
    stage.refuses_somehow("\r\n".repeat(TOO_MUCH / 2), &[400, 431]).await;
}

#[tokio::test]
async fn a_head_of_common_size_is_served() {
    let stage = FramingStage::set().await;
    let mut request = TestRequest::get(&format!("/orders?q={}", "a".repeat(2_000)));
    for number in 0..40 {
        request = request.header(&format!("X-{number}"), &"a".repeat(100));
    }
    assert_eq!(stage.gateway.request(request).await.status, 200);
    let received = stage.upstream.only();
    assert_eq!(received.header("x-39"), Some(&*"a".repeat(100)));
}
