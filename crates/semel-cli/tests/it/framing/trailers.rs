//! What comes behind a body does not change what came before it.

use super::{HIDDEN, Stage, keyed, plain, shown};

const FORBIDDEN: [&str; 8] = [
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Host: evil.example",
    "Authorization: Bearer stolen",
    "Idempotency-Key: other",
    "Semel-Attempt: 99",
    "X-Forwarded-For: 203.0.113.7",
    "Connection: x-forwarded-for",
];

/// Let through without them, or refused.
#[tokio::test]
async fn a_forbidden_trailer_reaches_no_upstream() {
    for trailer in FORBIDDEN {
        let stage = Stage::set().await;
        let name = trailer.split(':').next().unwrap();
        let lines = format!("Transfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: {name}\r\n");
        for head in [keyed(&lines), plain(&lines)] {
            let mut wire = stage.gateway.wire().await;
            wire.say(format!("{head}5\r\nhello\r\n0\r\n{trailer}\r\n\r\n")).await;
            if let Some(answer) = wire.hear().await {
                assert!([200, 400, 502].contains(&answer.status), "{trailer}: {answer:?}");
            }
        }
        let value = trailer.split(": ").nth(1).unwrap();
        for seen in stage.upstream.seen() {
            let hit = |headers: &[(String, String)]| {
                headers.iter().any(|(it, said)| *it == name.to_lowercase() && said == value)
            };
            // The upstream's own framing may say the same.
            let framing = name == "Transfer-Encoding" || name == "Content-Length";
            assert!(framing || !hit(&seen.headers), "{trailer}: {seen:?}");
            assert!(!hit(&seen.trailers), "{trailer}: {seen:?}");
        }
    }
}

/// A trailer that could be read as the end of the body, or as the next request.
#[tokio::test]
async fn a_broken_trailer_is_refused() {
    let stage = Stage::set().await;
    for trailer in ["X-A: 1\n", "X-A : 1\r\n", "X-A: 1\r\n 2\r\n", "nonsense\r\n", "X-A: \0\r\n"] {
        let head = keyed("Transfer-Encoding: chunked\r\n");
        let bytes = format!("{head}5\r\nhello\r\n0\r\n{trailer}\r\n{HIDDEN}");
        let what = shown(bytes.as_bytes());
        let mut wire = stage.gateway.wire().await;
        wire.say(&bytes).await;
        let answer = wire.hear().await.unwrap_or_else(|| panic!("no answer: {what}"));
        assert_eq!(answer.status, 400, "{what}");
        wire.assert_closed(&what).await;
        stage.assert_nothing_came_of(&what).await;
    }
}

#[tokio::test]
async fn endless_trailers_are_refused() {
    let stage = Stage::set().await;
    let trailers = "X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(30_000);
    let head = keyed("Transfer-Encoding: chunked\r\n");
    stage.refuses_somehow(format!("{head}5\r\nhello\r\n0\r\n{trailers}"), &[400, 413, 431]).await;
}
