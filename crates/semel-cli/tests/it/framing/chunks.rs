//! The chunks of a body are read strictly. With a key, nothing of a malformed body reaches the upstream; without a key,
//! the upstream never gets its end.

use super::{FramingStage, HIDDEN, keyed, plain, shown};

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

async fn refused(bodies: &[impl AsRef<str>]) {
    let stage = FramingStage::set().await;
    for chunks in bodies {
        stage.refuses_with_tail(keyed(CHUNKED) + chunks.as_ref()).await;
    }
    for chunks in bodies {
        broken_off(&stage, (plain(CHUNKED) + chunks.as_ref() + HIDDEN).as_bytes()).await;
    }
}

/// Each of these sizes of the only chunk is refused.
async fn refused_sizes(sizes: &[&str]) {
    let bodies = sizes.iter().map(|size| format!("{size}\r\nhello\r\n0\r\n\r\n"));
    refused(&bodies.collect::<Vec<_>>()).await;
}

/// The request may have begun at the upstream before its malformed end arrives, but it never ends there.
async fn broken_off(stage: &FramingStage, bytes: &[u8]) {
    let what = shown(bytes);
    let mut connection = stage.gateway.connection().await;
    connection.write(bytes).await;
    if let Some(response) = connection.read_response().await {
        assert!([400, 502].contains(&response.status), "{what}: {response:?}");
    }
    connection.assert_closed(&what).await;
    stage.assert_no_second(&what).await;
    let received = stage.upstream.received();
    assert!(
        received.iter().all(|received| received.target == "/after" || !received.whole),
        "{what}: {received:?}"
    );
}

#[tokio::test]
async fn a_chunk_size_before_a_bare_lf_is_refused() {
    refused(&["5\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\n\r\n"]).await;
}

#[tokio::test]
async fn a_chunk_extension_before_a_bare_lf_is_refused() {
    refused(&["5;a\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0;a\n\r\n"]).await;
}

#[tokio::test]
async fn a_chunk_size_before_a_bare_cr_is_refused() {
    refused(&["5\rhello\r\n0\r\n\r\n", "5\r\r\nhello\r\n0\r\n\r\n"]).await;
}

#[tokio::test]
async fn a_chunk_size_that_is_no_hexadecimal_number_is_refused() {
    refused_sizes(&["0x5", "+5", "-5", "five", "", "5_", "5h", " 5", "\"5\""]).await;
}

#[tokio::test]
async fn a_chunk_size_beyond_all_numbers_is_refused() {
    refused_sizes(&["10000000000000005", "FFFFFFFFFFFFFFFFF", &"F".repeat(64)]).await;
}

#[tokio::test]
async fn data_without_its_line_end_is_refused() {
    refused(&[
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello!!\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
    ])
    .await;
}

#[tokio::test]
async fn a_body_that_ends_with_a_bare_lf_is_refused() {
    refused(&["5\r\nhello\r\n0\r\n\n"]).await;
}

/// The extension is accepted or refused, but a request hidden in or behind it never runs.
#[tokio::test]
async fn a_chunk_extension_hides_nothing() {
    let stage = FramingStage::set().await;
    let quoted = format!("5;a=\"{}\"\r\nhello\r\n0\r\n\r\n", HIDDEN.replace("\r\n", " "));
    for chunks in ["5;a=b\r\nhello\r\n0;c\r\n\r\n", "5 ; a\r\nhello\r\n0\r\n\r\n", &quoted] {
        let mut connection = stage.gateway.connection().await;
        connection.write(plain(CHUNKED) + chunks).await;
        if let Some(response) = connection.read_response().await {
            assert!([200, 400, 502].contains(&response.status), "{chunks}: {response:?}");
        }
        stage.assert_no_second(chunks).await;
    }
    let received = stage.upstream.received();
    assert!(
        received.iter().all(|received| !received.whole
            || received.body == b"hello"
            || received.method == "GET")
    );
}

#[tokio::test]
async fn an_endless_chunk_extension_is_refused() {
    let stage = FramingStage::set().await;
    let bytes = format!("{}5;{}", keyed(CHUNKED), "a".repeat(1 << 20));
    stage.refuses_somehow(bytes, &[400, 413]).await;
}

/// The body of the first request contains the whole second request in one chunk.
#[tokio::test]
async fn a_request_inside_a_chunk_is_a_body() {
    let stage = FramingStage::set().await;
    for head in [keyed(CHUNKED), plain(CHUNKED)] {
        let mut connection = stage.gateway.connection().await;
        connection.write(format!("{head}{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len())).await;
        assert_eq!(connection.read_response().await.unwrap().status, 200);
    }
    let received = stage.upstream.received();
    assert_eq!(received.len(), 2);
    assert!(received.iter().all(|received| received.body == HIDDEN.as_bytes()), "{received:?}");
    stage.assert_no_second("in a chunk").await;
}

#[tokio::test]
async fn a_chunked_body_in_many_pieces_is_one_body() {
    let stage = FramingStage::set().await;
    for head in [keyed(CHUNKED), plain(CHUNKED)] {
        let mut connection = stage.gateway.connection().await;
        for byte in (head + "1\r\nh\r\n004\r\nello\r\n0\r\n\r\n").as_bytes() {
            connection.write([*byte]).await;
        }
        assert_eq!(connection.read_response().await.unwrap().status, 200);
    }
    assert!(stage.upstream.received().iter().all(|received| received.body == b"hello"));
}
