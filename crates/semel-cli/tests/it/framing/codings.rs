//! Transfer-Encoding is `chunked`, once and alone, or the request is refused.

use super::{Stage, keyed, plain};

const CHUNKS: &str = "5\r\nhello\r\n0\r\n\r\n";

/// Refused with and without a key, whichever of these it says.
async fn refused(codings: &[&str]) {
    let stage = Stage::set().await;
    for coding in codings {
        let lines = format!("Transfer-Encoding: {coding}\r\n");
        stage.refuses_with_tail(keyed(&lines) + CHUNKS).await;
        stage.refuses_with_tail(plain(&lines) + CHUNKS).await;
    }
}

#[tokio::test]
async fn chunked_is_read_in_any_case() {
    let stage = Stage::set().await;
    for coding in ["chunked", "Chunked", "CHUNKED"] {
        let head = plain(&format!("Transfer-Encoding: {coding}\r\n"));
        let mut wire = stage.gateway.wire().await;
        wire.say(head + CHUNKS).await;
        assert_eq!(wire.hear().await.unwrap().status, 200, "{coding}");
    }
    let seen = stage.upstream.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|seen| seen.body == b"hello"), "{seen:?}");
}

#[tokio::test]
async fn any_other_coding_is_refused() {
    refused(&["identity", "gzip", "xchunked", "chunkedx", "chunk", "\"chunked\"", "chunked;a"])
        .await;
}

#[tokio::test]
async fn a_list_of_codings_is_refused() {
    refused(&["chunked, identity", "gzip, chunked", "chunked, chunked", "chunked,", ", chunked"])
        .await;
}

#[tokio::test]
async fn an_empty_coding_is_refused() {
    refused(&[""]).await;
}

#[tokio::test]
async fn two_lines_of_codings_are_refused() {
    refused(&[
        "chunked\r\nTransfer-Encoding: chunked",
        "chunked\r\nTransfer-Encoding: identity",
        "identity\r\nTransfer-Encoding: chunked",
    ])
    .await;
}

/// White space that some servers take for part of the value.
#[tokio::test]
async fn a_coding_behind_odd_white_space_is_refused() {
    refused(&["\x0bchunked", "\x0cchunked", "chunked\x0b", "\u{a0}chunked"]).await;
}

/// A name that only looks like the real one is another header.
#[tokio::test]
async fn a_coding_under_a_similar_name_frames_nothing() {
    let stage = Stage::set().await;
    let head = plain("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n");
    let mut wire = stage.gateway.wire().await;
    wire.say(head + "0\r\n\r\n").await;
    let answer = wire.hear().await.unwrap();
    assert!([200, 400].contains(&answer.status), "{answer:?}");
    if answer.status == 200 {
        assert_eq!(stage.upstream.only().body, b"0\r\n\r\n");
    }
}

#[tokio::test]
async fn a_coding_in_http_1_0_is_refused() {
    let stage = Stage::set().await;
    let lines = "Transfer-Encoding: chunked\r\n";
    for more in ["", "Connection: keep-alive\r\n", "Content-Length: 5\r\n"] {
        let head = plain(&format!("{lines}{more}")).replace("HTTP/1.1", "HTTP/1.0");
        stage.refuses(head + CHUNKS + super::HIDDEN, &[400, 411]).await;
    }
}
