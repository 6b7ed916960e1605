//! Upstreams that break the standard, or respond before they have read the request.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::harness::{
    ClientConnection, PATIENCE, ScriptedReply, Setup, TestRequest, TestUpstream, accept, until,
};

/// An upstream for one connection, with a handler that reads and writes the bytes itself.
async fn raw<F>(serve: impl FnOnce(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        serve(accept(&listener).await).await;
    });
    address
}

/// An upstream whose response has chunks and a length that is too short.
async fn framed_twice() -> TestUpstream {
    TestUpstream::start(|received| match &*received.target {
        "/twice" => ScriptedReply::nothing().write(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
             b\r\nhello world\r\n0\r\n\r\n",
        ),
        _ => ScriptedReply::ok("next"),
    })
    .await
}

async fn is_one_response(request: TestRequest) {
    let upstream = framed_twice().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.send(request).await;
    let response = connection.read_response().await.expect("a response");
    let is_whole = response.status == 200 && response.text() == "hello world";
    assert!(is_whole || response.problem() == Some("upstream-failed"), "{response:?}");
    connection.write(TestRequest::get("/next").bytes()).await;
    if let Some(next) = connection.read_response().await {
        next.assert_ran("next");
    }
}

/// RFC 9112, 6.3: chunks overrule a length. If both were forwarded, the rest of the body would look like the next
/// response on this connection.
#[tokio::test]
async fn a_response_with_a_length_and_chunks_is_whole_or_refused() {
    is_one_response(TestRequest::get("/twice")).await;
}

#[tokio::test]
async fn a_response_with_a_length_and_chunks_to_a_keyed_request_is_whole_or_refused() {
    is_one_response(TestRequest::post("/twice").key("k").body("5 EUR")).await;
}

/// Clients read such a list differently, so the gateway must not forward it.
#[tokio::test]
async fn a_response_has_one_content_length() {
    let upstream = TestUpstream::start(|_| {
        ScriptedReply::nothing().write("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello")
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    for request in [TestRequest::get("/orders"), TestRequest::charge("k")] {
        let mut connection = gateway.send(request).await;
        let response = connection.read_head().await.unwrap();
        let is_nonsense = response.problem() == Some("upstream-failed");
        assert!(is_nonsense || response.header("content-length") == Some("5"), "{response:?}");
    }
}

/// If a response were refused for its size, the operation would run again.
#[tokio::test]
async fn a_response_with_many_headers_is_forwarded() {
    let upstream = TestUpstream::start(|received| {
        let lines: String = (0..150).map(|it| format!("Set-Cookie: c{it}=1\r\n")).collect();
        ScriptedReply::with(200, &lines, format!("run {}", received.number))
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    gateway.request(TestRequest::charge("k")).await.assert_replay("run 1");
}

/// The upstream has answered, and would answer the same again: a retry would only run the operation again.
#[tokio::test]
async fn a_response_whose_head_is_too_large_is_recorded_as_a_failure() {
    let lines: String = (0..1000).map(|it| format!("X-Many-{it}: 1\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "x".repeat(1 << 20));
    for (headers, lost) in [(&lines, "rerun"), (&long, "rerun"), (&lines, "hold")] {
        let headers = headers.clone();
        let upstream =
            TestUpstream::start(move |_| ScriptedReply::with(200, &headers, "done").close()).await;
        let config = format!("on_lost_owner = \"{lost}\"\nbackoff = \"10ms\"\n");
        let gateway = Setup::to(&upstream).config(&config).start().await;
        let first = gateway.request(TestRequest::charge("k")).await;
        first.assert_problem(502, "upstream-head-too-large");
        assert_eq!(first.header("stripe-should-retry"), Some("false"));
        for _ in 0..2 {
            let again = gateway.request(TestRequest::charge("k")).await;
            again.assert_problem(502, "upstream-head-too-large");
            assert!(again.is_replay() && again.body == first.body, "{again:?}");
        }
        assert_eq!(upstream.count(), 1, "it ran once");
        // Without a key nothing is recorded, and the log has the same line.
        let plain = gateway.request(TestRequest::get("/orders")).await;
        plain.assert_problem(502, "upstream-head-too-large");
        let words = "the head of its response is too large";
        until("it is logged", async || gateway.stderr().contains(words)).await;
    }
}

/// The outer gateway treats the response of the inner one as the end of the operation.
#[tokio::test]
async fn an_outer_gateway_records_that_a_head_was_too_large() {
    let upstream = TestUpstream::start(|_| {
        let lines: String = (0..1000).map(|it| format!("X-Many-{it}: 1\r\n")).collect();
        ScriptedReply::with(200, &lines, "done").close()
    })
    .await;
    let inner = Setup::to(&upstream).start().await;
    let outer = Setup::new().flag("--upstream", &format!("http://{}", inner.address));
    let outer = outer.config("backoff = \"10ms\"\n").start().await;
    for replay in [false, true] {
        let response = outer.request(TestRequest::charge("k")).await;
        assert_eq!((response.status, response.is_replay()), (502, replay), "{response:?}");
    }
    drop(inner);
    assert!(
        outer.request(TestRequest::charge("k")).await.is_replay(),
        "it is recorded in the outer one"
    );
    assert_eq!(upstream.count(), 1);
}

/// It is logged like a response that never began.
#[tokio::test]
async fn a_response_that_breaks_off_is_logged() {
    let upstream = TestUpstream::start(|_| {
        ScriptedReply::nothing()
            .write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
            .close()
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.send(TestRequest::get("/orders")).await;
    assert!(connection.read_response().await.is_none_or(|response| !response.whole));
    until("it is logged", async || gateway.stderr().contains("upstream=\"default\"")).await;
}

/// The gateway does not decode this coding, so it must not forward the body as if it had.
#[tokio::test]
async fn a_response_in_an_unknown_transfer_coding_is_refused() {
    let upstream = TestUpstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
        ScriptedReply::nothing().write(head).write("5\r\n\x1f\x1d\x08xx\r\n0\r\n\r\n")
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let response = gateway.request(TestRequest::get("/orders")).await;
    assert_eq!(response.problem(), Some("upstream-failed"), "{response:?}");
}

/// Endless interim responses are not the head of a response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_only_hints_times_out() {
    let address = raw(async |mut stream: TcpStream| {
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(500);
        while stream.write_all(hints.as_bytes()).await.is_ok() {}
    })
    .await;
    let setup = Setup::new().flag("--upstream", &format!("http://{address}"));
    let gateway = setup.config("[timeouts]\nheader = \"500ms\"\n").start().await;
    let response = timeout(PATIENCE, gateway.request(TestRequest::get("/orders"))).await;
    response.expect("a response in time").assert_problem(504, "upstream-timeout");
}

/// Responses that must not have a body, from an upstream that sends one.
#[tokio::test]
async fn a_body_of_a_response_without_one_is_not_the_next_response() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let upstream = TestUpstream::start(move |received| match &*received.target {
        "/204" => ScriptedReply::with(204, "", evil),
        "/304" => ScriptedReply::with(304, "", evil),
        "/head" => ScriptedReply::with(200, "", evil),
        _ => ScriptedReply::ok("hello"),
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let requests = [
        TestRequest::get("/204"),
        TestRequest::get("/304"),
        TestRequest::head_of("/head"),
        TestRequest::post("/204").key("a"),
        TestRequest::post("/304").key("b"),
    ];
    for request in requests {
        let mut connection = gateway.send(&request).await;
        assert!(connection.read_head().await.is_some(), "{request:?}");
        sleep(Duration::from_millis(20)).await;
        connection.write(TestRequest::get("/").bytes()).await;
        connection.read_response().await.unwrap().assert_ran("hello");
    }
}

/// The upstream refuses the request as soon as it has read the head, and closes the connection.
async fn says_no_early(request: impl Fn(usize) -> TestRequest) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let mut stream = accept(&listener).await;
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            let no = "HTTP/1.1 413 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
            stream.write_all(no.as_bytes()).await.unwrap();
        }
    });
    let setup = Setup::new().flag("--upstream", &format!("http://{address}"));
    let gateway = setup.flag("--max-body", "16MiB").start().await;
    let mut received = Vec::new();
    for number in 0..30 {
        let mut connection = gateway.send(request(number)).await;
        received.push(connection.read_response().await.map(|it| it.status));
    }
    assert_eq!(received, [Some(413); 30], "{}", gateway.stderr());
}

#[tokio::test]
async fn an_early_no_is_passed_on_to_a_keyed_request() {
    let body = vec![b'x'; 8 << 20];
    says_no_early(|number| TestRequest::post("/x").key(&number.to_string()).body(body.clone()))
        .await;
}

#[tokio::test]
async fn an_early_no_is_passed_on_to_an_upload() {
    let body = vec![b'x'; 8 << 20];
    says_no_early(|_| TestRequest::post("/x").body(body.clone())).await;
}

/// Upload and download do not wait for each other: a client may send everything before it reads.
#[tokio::test]
async fn an_upload_goes_on_while_its_response_is_not_read() {
    const UP: usize = 64 << 20;
    const DOWN: usize = 32 << 20;
    let address = raw(async |mut stream: TcpStream| {
        let (mut from, mut to) = stream.split();
        let down = async {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {DOWN}\r\n\r\n");
            to.write_all(head.as_bytes()).await.unwrap();
            let _ = to.write_all(&vec![b'x'; DOWN]).await;
        };
        let up = async {
            let mut buffer = vec![0; 64 << 10];
            while from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        };
        tokio::join!(down, up);
    })
    .await;
    let setup = Setup::new().flag("--upstream", &format!("http://{address}"));
    let gateway = setup.config("[client]\nbody = \"3s\"\n").start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!("POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: {UP}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let sent = stream.write_all(&vec![b'y'; UP]).await;
    assert!(sent.is_ok(), "the upload stopped: {sent:?}");
}

/// A response that waits for the rest of the request has not stalled.
#[tokio::test]
async fn a_response_that_began_before_a_long_upload_is_not_cut_off() {
    let address = raw(async |mut stream: TcpStream| {
        let mut buffer = vec![0; 4096];
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
        // The first piece may arrive with the head.
        let first = stream.read(&mut buffer).await.unwrap();
        let mut received = buffer[..first].iter().filter(|it| **it == b'~').count();
        stream.write_all(head.as_bytes()).await.unwrap();
        while received < 30 {
            match stream.read(&mut buffer).await {
                Ok(read) if read > 0 => {
                    received += buffer[..read].iter().filter(|it| **it == b'~').count()
                }
                _ => return,
            }
        }
        stream.write_all(b"done").await.unwrap();
        sleep(Duration::from_secs(1)).await;
    })
    .await;
    let setup = Setup::new().flag("--upstream", &format!("http://{address}"));
    let gateway = setup.config("[timeouts]\nbody = \"500ms\"\n").start().await;
    let mut connection = gateway.connection().await;
    connection.write(TestRequest::post("/long").body("~".repeat(30)).head()).await;
    for _ in 0..30 {
        connection.write("~").await;
        sleep(Duration::from_millis(50)).await;
    }
    let response = connection.read_response().await.expect("a response");
    assert_eq!((response.status, &*response.text(), response.whole), (200, "done", true));
}

/// Each response belongs to its request, and each request is sent once, whatever happens to connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_are_never_mixed_up_and_requests_never_repeated() {
    let upstream = TestUpstream::start(|received| {
        let reply = ScriptedReply::ok(&received.target);
        match received.number % 7 {
            0 => reply.close(),
            1 => reply.reset(),
            // In one piece: bytes that arrive after the next request was sent look like a part of its response.
            2 => ScriptedReply::nothing().write(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
                received.target.len(),
                received.target
            )),
            3 => ScriptedReply::nothing().write("HTTP/1.1 200 OK\r\n\r\n").write(&received.target).close(),
            4 => ScriptedReply::nothing().close(),
            _ => reply,
        }
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let address = gateway.address;
    let clients = (0..32).map(|client| {
        tokio::spawn(async move {
            let mut mixed = 0;
            let mut connection = ClientConnection::to(address).await;
            for number in 0..100 {
                let target = format!("/{client}/{number}");
                let request = match number % 3 {
                    0 => TestRequest::get(&target),
                    1 => TestRequest::post(&target).body("5 EUR"),
                    _ => TestRequest::post(&target).key(&target).body("5 EUR"),
                };
                connection.write(request.bytes()).await;
                let Some(response) = connection.read_response().await else {
                    connection = ClientConnection::to(address).await;
                    continue;
                };
                mixed += usize::from(response.status == 200 && response.text() != target);
            }
            mixed
        })
    });
    let mut mixed = 0;
    for client in clients.collect::<Vec<_>>() {
        mixed += client.await.unwrap();
    }
    let mut targets: Vec<_> =
        upstream.received().into_iter().map(|received| received.target).collect();
    let all = targets.len();
    targets.sort();
    targets.dedup();
    assert_eq!((mixed, all - targets.len()), (0, 0), "of {all}");
}
