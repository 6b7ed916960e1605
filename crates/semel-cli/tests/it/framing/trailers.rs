//! Trailers do not change the meaning of the head.

use super::{FramingStage, HIDDEN, keyed, plain, shown};

/// Sends these trailers. The request is forwarded without them or refused: they reach the upstream neither as headers
/// nor as trailers.
async fn stay_behind(trailers: &[(&str, &str)]) {
    let stage = FramingStage::set().await;
    for (name, value) in trailers {
        let lines = format!("Transfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: {name}\r\n");
        let keyed = keyed(&lines).replace("Key: k", &format!("Key: {name}"));
        for head in [keyed, plain(&lines)] {
            let mut connection = stage.gateway.connection().await;
            connection.write(format!("{head}5\r\nhello\r\n0\r\n{name}: {value}\r\n\r\n")).await;
            if let Some(response) = connection.read_response().await {
                assert!([200, 400, 502].contains(&response.status), "{name}: {response:?}");
            }
        }
        let wanted = (name.to_lowercase(), (*value).to_owned());
        for received in stage.upstream.received() {
            // The body to the upstream is in chunks, too.
            assert!(*value == "chunked" || !received.headers.contains(&wanted), "{received:?}");
            assert!(!received.trailers.contains(&wanted), "{received:?}");
        }
    }
}

#[tokio::test]
async fn a_trailer_that_would_frame_route_or_authorize_is_removed() {
    stay_behind(&[
        ("Content-Length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Host", "evil.example"),
        ("Authorization", "Bearer stolen"),
    ])
    .await;
}

/// A server that merges trailers into the headers would trust them.
#[tokio::test]
async fn a_semel_trailer_of_a_client_is_removed() {
    stay_behind(&[
        ("Idempotency-Key", "other"),
        ("Semel-Attempt", "99"),
        ("X-Forwarded-For", "203.0.113.7"),
        ("Forwarded", "for=203.0.113.7"),
        ("Connection", "x-forwarded-for"),
    ])
    .await;
}

/// A trailer that could be read as the end of the body, or as the next request.
#[tokio::test]
async fn a_broken_trailer_is_refused() {
    let stage = FramingStage::set().await;
    for trailer in ["X-A: 1\n", "X-A : 1\r\n", "X-A: 1\r\n 2\r\n", "nonsense\r\n", "X-A: \0\r\n"] {
        let head = keyed("Transfer-Encoding: chunked\r\n");
        let bytes = format!("{head}5\r\nhello\r\n0\r\n{trailer}\r\n{HIDDEN}");
        let what = shown(bytes.as_bytes());
        let mut connection = stage.gateway.connection().await;
        connection.write(&bytes).await;
        let response =
            connection.read_response().await.unwrap_or_else(|| panic!("no answer: {what}"));
        assert_eq!(response.status, 400, "{what}");
        connection.assert_closed(&what).await;
        stage.assert_nothing_came_of(&what).await;
    }
}

#[tokio::test]
async fn endless_trailers_are_refused() {
    let stage = FramingStage::set().await;
    let trailers = "X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(30_000);
    let head = keyed("Transfer-Encoding: chunked\r\n");
    stage.refuses_somehow(format!("{head}5\r\nhello\r\n0\r\n{trailers}"), &[400, 413, 431]).await;
}
