//! A request with an ambiguous Content-Length is refused.

use super::{FramingStage, HIDDEN, keyed, plain};

/// The head is refused with and without a key.
async fn refused(cases: &[(&str, &str)]) {
    let stage = FramingStage::set().await;
    for (lines, body) in cases {
        stage.refuses_with_tail(keyed(lines) + body).await;
        stage.refuses_with_tail(plain(lines) + body).await;
    }
}

/// Each of these values of the length is refused.
async fn refused_lengths(lengths: &[&str]) {
    let lines: Vec<_> = lengths.iter().map(|it| format!("Content-Length: {it}\r\n")).collect();
    refused(&lines.iter().map(|it| (it.as_str(), "hello")).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_length_and_then_a_coding_are_refused() {
    refused(&[("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")]).await;
}

#[tokio::test]
async fn a_coding_and_then_a_length_are_refused() {
    refused(&[("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")]).await;
}

/// The length covers the hidden request, the chunks do not; and the other way round.
#[tokio::test]
async fn a_request_hidden_between_length_and_coding_never_runs() {
    let stage = FramingStage::set().await;
    let chunks = format!("0\r\n\r\n{HIDDEN}");
    let length = chunks.len();
    let lines = format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n");
    stage.refuses(plain(&lines) + &chunks, &[400]).await;
    let chunks = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    let lines = "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n";
    stage.refuses(plain(lines) + &chunks, &[400]).await;
}

#[tokio::test]
async fn a_length_and_any_other_coding_are_refused() {
    let stage = FramingStage::set().await;
    for coding in ["identity", "xchunked", "chunked, identity", "\x0bchunked", ""] {
        let lines = format!("Content-Length: 5\r\nTransfer-Encoding: {coding}\r\n");
        stage.refuses_with_tail(keyed(&lines) + "hello").await;
        stage.refuses_with_tail(plain(&lines) + "hello").await;
    }
}

#[tokio::test]
async fn two_different_lengths_are_refused() {
    refused(&[
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"),
        ("Content-Length: 0\r\nContent-Length: 5\r\n", "hello"),
    ])
    .await;
}

#[tokio::test]
async fn two_equal_lengths_are_refused() {
    refused(&[("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")]).await;
}

#[tokio::test]
async fn a_list_of_lengths_is_refused() {
    refused_lengths(&["5, 5", "5,5", "5, 6", "5,"]).await;
}

#[tokio::test]
async fn a_length_with_a_sign_is_refused() {
    refused_lengths(&["+5", "-5", "-0", "+0"]).await;
}

#[tokio::test]
async fn a_length_that_is_no_number_is_refused() {
    refused_lengths(&["0x5", "5 5", "5.0", "five", "5;", "\"5\"", "1_0"]).await;
}

#[tokio::test]
async fn an_empty_length_is_refused() {
    let stage = FramingStage::set().await;
    for lines in ["Content-Length:\r\n", "Content-Length: \r\n"] {
        stage.refuses_with_tail(keyed(lines)).await;
        stage.refuses_with_tail(plain(lines)).await;
    }
}

#[tokio::test]
async fn a_length_beyond_all_numbers_is_refused() {
    refused_lengths(&["18446744073709551616", "18446744073709551621", &"9".repeat(60)]).await;
}

/// A huge length is valid or refused, and the gateway does not wait for the body.
#[tokio::test]
async fn a_huge_length_with_a_key_is_refused_before_it_is_read() {
    let stage = FramingStage::set().await;
    for length in ["9223372036854775807", "18446744073709551615"] {
        let bytes = keyed(&format!("Content-Length: {length}\r\n")) + "hello";
        stage.refuses(bytes, &[400, 413]).await;
    }
}
