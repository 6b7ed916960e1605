//! Transfer-Encoding is `chunked`, once and alone, or the request is refused.

use super::{FramingStage, keyed, plain};

const CHUNKS: &str = "5\r\nhello\r\n0\r\n\r\n";

/// Each of these values is refused, with and without a key.
async fn refused(codings: &[&str]) {
    let stage = FramingStage::set().await;
    for coding in codings {
        let lines = format!("Transfer-Encoding: {coding}\r\n");
        stage.refuses_with_tail(keyed(&lines) + CHUNKS).await;
        stage.refuses_with_tail(plain(&lines) + CHUNKS).await;
    }
}

#[tokio::test]
async fn chunked_is_read_in_any_case() {
    let stage = FramingStage::set().await;
    for coding in ["chunked", "Chunked", "CHUNKED"] {
        let head = plain(&format!("Transfer-Encoding: {coding}\r\n"));
        let mut connection = stage.gateway.connection().await;
        connection.write(head + CHUNKS).await;
        assert_eq!(connection.read_response().await.unwrap().status, 200, "{coding}");
    }
    let received = stage.upstream.received();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|received| received.body == b"hello"), "{received:?}");
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

/// White space that some servers count as part of the value.
#[tokio::test]
async fn a_coding_behind_odd_white_space_is_refused() {
    refused(&["\x0bchunked", "\x0cchunked", "chunked\x0b", "\u{a0}chunked"]).await;
}

/// A header with a similar name is another header.
#[tokio::test]
async fn a_coding_under_a_similar_name_frames_nothing() {
    let stage = FramingStage::set().await;
    let head = plain("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n");
    let mut connection = stage.gateway.connection().await;
    connection.write(head + "0\r\n\r\n").await;
    let response = connection.read_response().await.unwrap();
    assert!([200, 400].contains(&response.status), "{response:?}");
    if response.status == 200 {
        assert_eq!(stage.upstream.only().body, b"0\r\n\r\n");
    }
}

#[tokio::test]
async fn a_coding_in_http_1_0_is_refused() {
    let stage = FramingStage::set().await;
    let lines = "Transfer-Encoding: chunked\r\n";
    for more in ["", "Connection: keep-alive\r\n", "Content-Length: 5\r\n"] {
        let head = plain(&format!("{lines}{more}")).replace("HTTP/1.1", "HTTP/1.0");
        stage.refuses(head + CHUNKS + super::HIDDEN, &[400, 411]).await;
    }
}
