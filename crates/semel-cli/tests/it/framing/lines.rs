//! A line of a head ends with CR LF, and has valid characters only.

use super::{FramingStage, HIDDEN, plain};

/// A request whose head can be cut anywhere.
const HEAD: &str =
    "POST /orders/7 HTTP/1.1\r\nHost: shop.example\r\nX-A: 1\r\nContent-Length: 5\r\n\r\n";

/// The line is refused in every position of a head.
async fn refused(lines: &[&[u8]]) {
    let stage = FramingStage::set().await;
    for line in lines {
        for place in ["X-A: 1\r\n", "Host: shop.example\r\n"] {
            let (before, after) = HEAD.split_once(place).unwrap();
            let place = place.as_bytes();
            let head = [before.as_bytes(), line, b"\r\n", place, after.as_bytes()].concat();
            stage.refuses_with_tail([&head[..], b"hello"].concat()).await;
        }
    }
}

#[tokio::test]
async fn a_bare_lf_after_the_request_line_is_refused() {
    let stage = FramingStage::set().await;
    stage.refuses_with_tail(HEAD.replacen("\r\n", "\n", 1) + "hello").await;
}

#[tokio::test]
async fn a_bare_lf_after_any_header_line_is_refused() {
    let stage = FramingStage::set().await;
    for line in ["shop.example", "X-A: 1", "Content-Length: 5"] {
        let bare = HEAD.replace(&format!("{line}\r\n"), &format!("{line}\n"));
        stage.refuses_with_tail(bare + "hello").await;
    }
}

#[tokio::test]
async fn a_bare_lf_at_the_end_of_a_head_is_refused() {
    let stage = FramingStage::set().await;
    for end in ["\r\n\n", "\n\r\n", "\n\n"] {
        let bare = HEAD.replace("\r\n\r\n", end);
        stage.refuses_with_tail(bare + "hello").await;
    }
}

/// One server ends the value at the LF, another does not.
#[tokio::test]
async fn a_bare_lf_in_a_value_hides_no_header() {
    refused(&[&b"X-A: 1\nTransfer-Encoding: chunked"[..], b"X-A: 1\n\nGET /hidden HTTP/1.1"]).await;
}

#[tokio::test]
async fn a_bare_cr_is_refused() {
    refused(&[&b"X-A: 1\rTransfer-Encoding: chunked"[..], b"X-A: 1\r\r", b"X-A\r: 1"]).await;
    let stage = FramingStage::set().await;
    stage.refuses_with_tail(HEAD.replacen("\r\n", "\r", 1) + "hello").await;
    stage.refuses_with_tail(HEAD.replace(" HTTP/1.1\r\n", "\r HTTP/1.1\r\n") + "hello").await;
}

#[tokio::test]
async fn a_nul_is_refused() {
    refused(&[&b"X-A: 1\x002"[..], b"X-A\x00: 1"]).await;
    let stage = FramingStage::set().await;
    stage.refuses_with_tail(HEAD.replace("/orders/7", "/orders/\x007") + "hello").await;
}

#[tokio::test]
async fn another_control_character_in_a_value_is_refused() {
    let lines = [1, 8, 11, 12, 27, 127].map(|byte| [b"X-A: 1", &[byte][..], b"2"].concat());
    refused(&lines.each_ref().map(Vec::as_slice)).await;
}

#[tokio::test]
async fn a_folded_line_is_refused() {
    refused(&[&b"X-A: 1\r\n 2"[..], b"X-A: 1\r\n\t2", b"X-A:\r\n chunked"]).await;
    let stage = FramingStage::set().await;
    stage.refuses_with_tail(plain("Transfer-Encoding:\r\n chunked\r\n") + "0\r\n\r\n").await;
    stage.refuses_with_tail(plain("Content-Length: 5\r\n 0\r\n") + "hello").await;
}

/// A folded line right after the request line has no header before it.
#[tokio::test]
async fn white_space_before_the_first_header_is_refused() {
    let stage = FramingStage::set().await;
    stage.refuses_with_tail(HEAD.replace("\r\nHost", "\r\n Host") + "hello").await;
    stage.refuses_with_tail(HEAD.replace("\r\nHost", "\r\n\tHost") + "hello").await;
    stage.refuses_with_tail(HEAD.replace("\r\nHost", "\r\n \r\nHost") + "hello").await;
}

#[tokio::test]
async fn white_space_before_a_colon_is_refused() {
    refused(&[&b"X-A : 1"[..], b"X-A\t: 1"]).await;
    let stage = FramingStage::set().await;
    stage.refuses_with_tail(plain("Content-Length : 5\r\n") + "hello").await;
    stage.refuses_with_tail(plain("Transfer-Encoding : chunked\r\n") + "0\r\n\r\n").await;
    stage
        .refuses_with_tail(
            plain("Content-Length: 5\r\nTransfer-Encoding : chunked\r\n") + "0\r\n\r\n",
        )
        .await;
}

#[tokio::test]
async fn a_line_that_is_no_header_is_refused() {
    refused(&[&b"nonsense"[..], b": no name", b"X(A): 1", b"X A: 1", b"\xc3\xa4: 1"]).await;
}

#[tokio::test]
async fn an_invalid_request_line_is_refused() {
    let stage = FramingStage::set().await;
    for line in [
        "POST  /orders/7 HTTP/1.1",
        "POST /orders/7  HTTP/1.1",
        "POST /orders/7 HTTP/1.1 ",
        "POST\t/orders/7 HTTP/1.1",
        "POST /orders/7 x HTTP/1.1",
        " POST /orders/7 HTTP/1.1",
        "P(ST /orders/7 HTTP/1.1",
        "POST /orders/7 HTTP/1.1x",
        "POST /orders/7 http/1.1",
    ] {
        stage.refuses_with_tail(HEAD.replace("POST /orders/7 HTTP/1.1", line) + "hello").await;
    }
}

/// Only the whole hidden request follows.
#[tokio::test]
async fn what_follows_a_refused_head_is_never_read_as_a_request() {
    let stage = FramingStage::set().await;
    let tail = HIDDEN.repeat(20);
    stage.refuses(HEAD.replacen("\r\n", "\n", 1) + &tail, &[400]).await;
    stage.refuses(format!("nonsense\r\n\r\n{tail}"), &[400]).await;
}
