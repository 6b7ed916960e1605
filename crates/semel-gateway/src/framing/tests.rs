//! Tests what the scanner lets through, and that hyper sees the same messages.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use semel_service::settings::ClientLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::{
    ClientStream, ConnectionState,
    scanner::{ScanPhase, Scanner},
};

const LIMITS: ClientLimits = ClientLimits {
    header: Duration::from_secs(10),
    body: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    connections: 1,
};

/// Scans all bytes at once; true if none was spoiled.
fn passes(text: &str) -> bool {
    let mut bytes = text.as_bytes().to_vec();
    Scanner::new().scan(&mut bytes);
    bytes == text.as_bytes()
}

fn post(head: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n")
}

#[test]
fn well_formed_messages_pass_untouched() {
    let chunked = post("Transfer-Encoding: Chunked\r\n");
    for text in [
        post(""),
        format!("\r\n{}", post("")),
        post("Content-Length: 5\r\n") + "hello" + &post(""),
        post("content-length:\t 5 \r\nX: \u{e9}\r\n") + "\r\n\n\r\n",
        format!("{chunked}5\r\nhello\r\n0\r\n\r\n{}", post("")),
        format!("{chunked}A;x=y\r\n0123456789\r\n00\r\nX-Sum: 1\r\n\r\n{}", post("")),
        post("Content-Lengths: 5\r\nContent-Lengt: 6\r\nX-Transfer-Encoding: x\r\n"),
    ] {
        assert!(passes(&text), "{text:?}");
    }
}

#[test]
fn ambiguous_messages_are_spoiled() {
    let chunked = |body: &str| post("Transfer-Encoding: chunked\r\n") + body;
    for text in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\n\n".to_owned(),
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\rHost: a\r\n\r\n".to_owned(),
        "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        post("X: a\rb\r\n"),
        post("X: a\0b\r\n"),
        post("X: a\r\n b\r\n"),
        post("X: a\r\n\tb\r\n"),
        post("X : a\r\n"),
        post(": a\r\n"),
        post("X\r\n"),
        post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        post("Content-Length: 5\r\nContent-Length: 6\r\n"),
        post("Content-Length: 5\r\ncontent-length: 5\r\n"),
        post("Content-Length: 5, 5\r\n"),
        post("Content-Length: +5\r\n"),
        post("Content-Length: -5\r\n"),
        post("Content-Length: 0x5\r\n"),
        post("Content-Length: 5 5\r\n"),
        post("Content-Length:\r\n"),
        post("Content-Length: 18446744073709551615\r\n"),
        post("Content-Length: 99999999999999999999\r\n"),
        post("Content-Length: 000000000000000000000005\r\n"),
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        post("Transfer-Encoding: gzip, chunked\r\n"),
        post("Transfer-Encoding: chunked, identity\r\n"),
        post("Transfer-Encoding: xchunked\r\n"),
        post("Transfer-Encoding: \"chunked\"\r\n"),
        post("Transfer-Encoding:\r\n"),
        chunked("\r\n"),
        chunked("5\nhello\r\n0\r\n\r\n"),
        chunked("5 \r\nhello\r\n0\r\n\r\n"),
        chunked("0x5\r\nhello\r\n0\r\n\r\n"),
        chunked("+5\r\nhello\r\n0\r\n\r\n"),
        chunked("5\r\nhello0\r\n\r\n"),
        chunked("5\r\nhelloXX0\r\n\r\n"),
        chunked("5\r\nhello\n0\r\n\r\n"),
        chunked("5;a\nb\r\nhello\r\n0\r\n\r\n"),
        chunked("10000000000000000\r\n"),
        chunked("0\r\nX: a\n\r\n"),
        chunked("0\r\n X: a\r\n\r\n"),
        chunked("0\r\n\n"),
    ] {
        assert!(!passes(&text), "{text:?}");
    }
}

#[test]
fn an_ambiguous_message_never_has_an_end() {
    let mut bytes = post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n").into_bytes();
    let length = bytes.len();
    Scanner::new().scan(&mut bytes);
    assert_eq!(&bytes[length - 4..], b"\r\n\r\0");
}

/// How many whole heads the scanner sees in `bytes`, and whether it let all of them pass.
fn scanned(bytes: &mut [u8]) -> (usize, bool) {
    let (mut scanner, mut heads) = (Scanner::new(), 0);
    let before = bytes.to_vec();
    let mut phase = ScanPhase::Between;
    for byte in bytes.iter_mut() {
        scanner.scan(std::slice::from_mut(byte));
        let now = scanner.phase();
        heads += usize::from(phase == ScanPhase::Head && now != ScanPhase::Head);
        phase = now;
    }
    (heads, before == bytes)
}

/// The bodies of the requests that hyper reads from `bytes` through a `ClientStream`; `None` for those that it could
/// not read to their end.
async fn served(bytes: &[u8]) -> Vec<Option<Bytes>> {
    let received: Arc<Mutex<Vec<Option<Bytes>>>> = Arc::default();
    let log = received.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let log = log.clone();
        async move {
            let body = request.into_body().collect().await.map(|body| body.to_bytes());
            log.lock().unwrap().push(body.ok());
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let (mut client, server) = duplex(64 * 1024);
    let stream = ClientStream::new(server, LIMITS, ConnectionState::default());
    let serving =
        http1::Builder::new().half_close(true).serve_connection(TokioIo::new(stream), service);
    let client_task = async {
        client.write_all(bytes).await.ok();
        client.shutdown().await.ok();
        client.read_to_end(&mut Vec::new()).await.ok();
    };
    let _ = tokio::join!(serving, client_task);
    Arc::try_unwrap(received)
        .map_or_else(|received| received.lock().unwrap().clone(), |it| it.into_inner().unwrap())
}

fn message() -> impl Strategy<Value = (String, String)> {
    let body = "[a-z\r\n0:]{0,40}";
    prop_oneof![
        Just((post(""), String::new())),
        body.prop_map(|body| {
            (post(&format!("Content-Length: {}\r\n", body.len())) + &body, body)
        }),
        prop::collection::vec("[a-z\r\n0:]{1,20}", 0..3).prop_map(|pieces| {
            let chunk = |piece: &String| format!("{:x}\r\n{piece}\r\n", piece.len());
            let chunks: String = pieces.iter().map(chunk).collect();
            let head = post("transfer-encoding: chunked\r\n");
            (format!("{head}{chunks}0\r\n\r\n"), pieces.concat())
        }),
    ]
}

/// Bytes that an attacker would insert.
fn insertion() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "\n",
        "\r",
        "\r\n",
        " ",
        "\t",
        "\0",
        "0",
        ":",
        ";",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
        "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn well_formed_messages_are_served_as_they_were_sent(messages in prop::collection::vec(message(), 1..5)) {
        let (texts, bodies): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
        let mut bytes = texts.concat().into_bytes();
        prop_assert_eq!(scanned(&mut bytes), (bodies.len(), true));
        let received = runtime().block_on(served(&bytes));
        let sent: Vec<_> = bodies.into_iter().map(|body| Some(Bytes::from(body))).collect();
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn hyper_never_sees_a_message_that_the_scanner_did_not(
        messages in prop::collection::vec(message(), 1..4),
        insertions in prop::collection::vec((any::<prop::sample::Index>(), insertion()), 1..3),
    ) {
        let mut text: String = messages.into_iter().map(|(text, _)| text).collect();
        for (place, insertion) in insertions {
            text.insert_str(place.index(text.len() + 1), insertion);
        }
        let mut bytes = text.clone().into_bytes();
        let (heads, _) = scanned(&mut bytes);
        let received = runtime().block_on(served(text.as_bytes()));
        prop_assert!(received.len() <= heads, "{:?}: {} heads, but {:?}", text, heads, received);
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_arrive(
        messages in prop::collection::vec(message(), 1..4),
        insertion in insertion(),
        place in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(1_usize..30, 1..10),
    ) {
        let mut text: String = messages.into_iter().map(|(text, _)| text).collect();
        text.insert_str(place.index(text.len() + 1), insertion);
        let mut whole = text.clone().into_bytes();
        let mut cut = whole.clone();
        Scanner::new().scan(&mut whole);
        let (mut scanner, mut at) = (Scanner::new(), 0);
        for length in cuts.iter().cycle() {
            if at >= cut.len() {
                break;
            }
            let end = (at + length).min(cut.len());
            scanner.scan(&mut cut[at..end]);
            at = end;
        }
        prop_assert_eq!(whole, cut);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_is_cut_off() {
    for (sent, limit) in [
        ("", LIMITS.idle),
        ("GET / HT", LIMITS.header),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel", LIMITS.body),
    ] {
        let (mut client, server) = duplex(1024);
        let mut stream = ClientStream::new(server, LIMITS, ConnectionState::default());
        client.write_all(sent.as_bytes()).await.unwrap();
        let began = tokio::time::Instant::now();
        let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{sent:?}");
        assert!(began.elapsed() >= limit && began.elapsed() < limit * 2, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_in_is_cut_off_and_a_body_is_not() {
    let (mut client, server) = duplex(1024);
    let mut stream = ClientStream::new(server, LIMITS, ConnectionState::default());
    let body = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n";
    client.write_all(body.as_bytes()).await.unwrap();
    tokio::spawn(async move {
        for _ in 0..50 {
            tokio::time::sleep(LIMITS.body / 2).await;
            client.write_all(b"x").await.unwrap();
        }
        for byte in b"GET / HTTP/1.1\r\nX: ".iter().chain([b'x'; 100].iter()) {
            tokio::time::sleep(LIMITS.header / 10).await;
            if client.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    });
    let mut all = Vec::new();
    let error = stream.read_to_end(&mut all).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let head = all.len() - body.len() - 50;
    assert!((9..=11).contains(&head), "{head} bytes of a head in its time");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_its_response_has_no_time_limit() {
    let (mut client, server) = duplex(1024);
    let connection = ConnectionState::default();
    connection.set_in_flight(true);
    let mut stream = ClientStream::new(server, LIMITS, connection);
    tokio::spawn(async move {
        tokio::time::sleep(LIMITS.idle * 100).await;
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    });
    let mut first = [0; 3];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"GET");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut_off() {
    let (_client, server) = duplex(16);
    let mut stream = ClientStream::new(server, LIMITS, ConnectionState::default());
    let error = stream.write_all(&[0; 64]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}
