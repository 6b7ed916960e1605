//! Upstreams that do not keep to the standard, or to one thing after the other.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::harness::{Ask, Reply, Setup, Upstream, Wire, accept, until};

/// An upstream for one connection that does what it likes with it.
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

/// An upstream that frames its answer twice, with a length that is too short.
async fn framed_twice() -> Upstream {
    Upstream::start(|seen| match &*seen.target {
        "/twice" => Reply::nothing().write(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
             b\r\nhello world\r\n0\r\n\r\n",
        ),
        _ => Reply::ok("next"),
    })
    .await
}

async fn is_one_answer(ask: Ask) {
    let upstream = framed_twice().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut wire = gateway.send(ask).await;
    let answer = wire.hear().await.expect("an answer");
    let is_whole = answer.status == 200 && answer.text() == "hello world";
    assert!(is_whole || answer.problem() == Some("upstream-failed"), "{answer:?}");
    wire.say(Ask::get("/next").bytes()).await;
    if let Some(next) = wire.hear().await {
        next.assert_ran("next");
    }
}

/// RFC 9112, 6.3: chunks overrule a length. With both passed on, what is left of the body would be the next
/// answer on this connection.
#[tokio::test]
async fn an_answer_with_a_length_and_chunks_is_whole_or_nonsense() {
    is_one_answer(Ask::get("/twice")).await;
}

#[tokio::test]
async fn an_answer_with_a_length_and_chunks_to_a_keyed_request_is_whole_or_nonsense() {
    is_one_answer(Ask::post("/twice").key("k").body("5 EUR")).await;
}

/// Readers differ about such a list; the gateway knows what it comes to.
#[tokio::test]
async fn the_length_of_an_answer_is_said_once() {
    let upstream = Upstream::start(|_| {
        Reply::nothing().write("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello")
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    for ask in [Ask::get("/orders"), Ask::charge("k")] {
        let mut wire = gateway.send(ask).await;
        let answer = wire.hear_head().await.unwrap();
        let is_nonsense = answer.problem() == Some("upstream-failed");
        assert!(is_nonsense || answer.header("content-length") == Some("5"), "{answer:?}");
    }
}

/// To lose an answer for its size is to run the operation again.
#[tokio::test]
async fn an_answer_with_many_headers_is_an_answer() {
    let upstream = Upstream::start(|seen| {
        let lines: String = (0..150).map(|it| format!("Set-Cookie: c{it}=1\r\n")).collect();
        Reply::with(200, &lines, format!("run {}", seen.number))
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    gateway.ask(Ask::charge("k")).await.assert_replay("run 1");
}

/// It ran, and will answer the same again: to try anew would only run it again.
#[tokio::test]
async fn an_answer_whose_head_is_too_large_is_recorded_as_a_failure() {
    let lines: String = (0..1000).map(|it| format!("X-Many-{it}: 1\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "x".repeat(1 << 20));
    for (headers, lost) in [(&lines, "rerun"), (&long, "rerun"), (&lines, "hold")] {
        let headers = headers.clone();
        let upstream = Upstream::start(move |_| Reply::with(200, &headers, "done").close()).await;
        let config = format!("on_lost_owner = \"{lost}\"\nbackoff = \"10ms\"\n");
        let gateway = Setup::to(&upstream).config(&config).start().await;
        let first = gateway.ask(Ask::charge("k")).await;
        first.assert_problem(502, "upstream-head-too-large");
        assert_eq!(first.header("stripe-should-retry"), Some("false"));
        for _ in 0..2 {
            let again = gateway.ask(Ask::charge("k")).await;
            again.assert_problem(502, "upstream-head-too-large");
            assert!(again.is_replay() && again.body == first.body, "{again:?}");
        }
        assert_eq!(upstream.count(), 1, "it ran once");
        // Without a key there is nothing to record, and the log says the same.
        let plain = gateway.ask(Ask::get("/orders")).await;
        plain.assert_problem(502, "upstream-head-too-large");
        let words = "the head of its answer is too large";
        until("it is logged", async || gateway.stderr().contains(words)).await;
    }
}

/// The outer one takes the inner one's answer for what it is: the end of the operation.
#[tokio::test]
async fn an_outer_gateway_records_that_a_head_was_too_large() {
    let upstream = Upstream::start(|_| {
        let lines: String = (0..1000).map(|it| format!("X-Many-{it}: 1\r\n")).collect();
        Reply::with(200, &lines, "done").close()
    })
    .await;
    let inner = Setup::to(&upstream).start().await;
    let outer = Setup::new().flag("--upstream", &format!("http://{}", inner.address));
    let outer = outer.config("backoff = \"10ms\"\n").start().await;
    for replay in [false, true] {
        let answer = outer.ask(Ask::charge("k")).await;
        assert_eq!((answer.status, answer.is_replay()), (502, replay), "{answer:?}");
    }
    drop(inner);
    assert!(outer.ask(Ask::charge("k")).await.is_replay(), "it is recorded in the outer one");
    assert_eq!(upstream.count(), 1);
}

/// As an answer that never began is.
#[tokio::test]
async fn an_answer_that_breaks_off_is_logged() {
    let upstream = Upstream::start(|_| {
        Reply::nothing().write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").close()
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let mut wire = gateway.send(Ask::get("/orders")).await;
    assert!(wire.hear().await.is_none_or(|answer| !answer.whole));
    until("it is logged", async || gateway.stderr().contains("upstream=\"default\"")).await;
}

/// Nobody undid that coding, so nobody may keep silent about it.
#[tokio::test]
async fn an_answer_in_a_coding_that_nobody_undid_is_nonsense() {
    let upstream = Upstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
        Reply::nothing().write(head).write("5\r\n\x1f\x1d\x08xx\r\n0\r\n\r\n")
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let answer = gateway.ask(Ask::get("/orders")).await;
    assert_eq!(answer.problem(), Some("upstream-failed"), "{answer:?}");
}

/// Hints without end are no head of an answer.
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
    let answer = timeout(Duration::from_secs(5), gateway.ask(Ask::get("/orders"))).await;
    answer.expect("an answer in time").assert_problem(504, "upstream-timeout");
}

/// Answers that must have no body, from an upstream that sends one.
#[tokio::test]
async fn a_body_where_there_is_none_is_not_the_next_answer() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let upstream = Upstream::start(move |seen| match &*seen.target {
        "/204" => Reply::with(204, "", evil),
        "/304" => Reply::with(304, "", evil),
        "/head" => Reply::with(200, "", evil),
        _ => Reply::ok("hello"),
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let asks = [
        Ask::get("/204"),
        Ask::get("/304"),
        Ask::head_of("/head"),
        Ask::post("/204").key("a"),
        Ask::post("/304").key("b"),
    ];
    for ask in asks {
        let mut wire = gateway.send(&ask).await;
        assert!(wire.hear_head().await.is_some(), "{ask:?}");
        sleep(Duration::from_millis(20)).await;
        wire.say(Ask::get("/").bytes()).await;
        wire.hear().await.unwrap().assert_ran("hello");
    }
}

/// The upstream says no as soon as it has seen the head, and closes on what is still coming.
async fn says_no_early(ask: impl Fn(usize) -> Ask) {
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
    let mut heard = Vec::new();
    for number in 0..30 {
        let mut wire = gateway.send(ask(number)).await;
        heard.push(wire.hear().await.map(|it| it.status));
    }
    assert_eq!(heard, [Some(413); 30], "{}", gateway.stderr());
}

#[tokio::test]
async fn an_early_no_is_passed_on_to_a_keyed_request() {
    let body = vec![b'x'; 8 << 20];
    says_no_early(|number| Ask::post("/x").key(&number.to_string()).body(body.clone())).await;
}

#[tokio::test]
async fn an_early_no_is_passed_on_to_an_upload() {
    let body = vec![b'x'; 8 << 20];
    says_no_early(|_| Ask::post("/x").body(body.clone())).await;
}

/// Up and down do not wait for each other: a client may send all before it reads.
#[tokio::test]
async fn an_upload_goes_on_while_its_answer_is_not_read() {
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

/// An answer that waits for the rest of a request has not stopped.
#[tokio::test]
async fn an_answer_that_began_before_a_long_upload_is_not_cut_off() {
    let address = raw(async |mut stream: TcpStream| {
        let mut buffer = vec![0; 4096];
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
        // The first piece may come with the head.
        let first = stream.read(&mut buffer).await.unwrap();
        let mut seen = buffer[..first].iter().filter(|it| **it == b'~').count();
        stream.write_all(head.as_bytes()).await.unwrap();
        while seen < 30 {
            match stream.read(&mut buffer).await {
                Ok(read) if read > 0 => {
                    seen += buffer[..read].iter().filter(|it| **it == b'~').count()
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
    let mut wire = gateway.wire().await;
    wire.say(Ask::post("/long").body("~".repeat(30)).head()).await;
    for _ in 0..30 {
        wire.say("~").await;
        sleep(Duration::from_millis(50)).await;
    }
    let answer = wire.hear().await.expect("an answer");
    assert_eq!((answer.status, &*answer.text(), answer.whole), (200, "done", true));
}

/// Each answer belongs to its request, and each request is sent once, whatever connections do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_never_mixed_up_and_requests_never_repeated() {
    let upstream = Upstream::start(|seen| {
        let reply = Reply::ok(&seen.target);
        match seen.number % 7 {
            0 => reply.close(),
            1 => reply.reset(),
            // In one piece: what comes after the next request was sent, nobody can tell from its answer.
            2 => Reply::nothing().write(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
                seen.target.len(),
                seen.target
            )),
            3 => Reply::nothing().write("HTTP/1.1 200 OK\r\n\r\n").write(&seen.target).close(),
            4 => Reply::nothing().close(),
            _ => reply,
        }
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let address = gateway.address;
    let clients = (0..32).map(|client| {
        tokio::spawn(async move {
            let mut mixed = 0;
            let mut wire = Wire::to(address).await;
            for number in 0..100 {
                let target = format!("/{client}/{number}");
                let ask = match number % 3 {
                    0 => Ask::get(&target),
                    1 => Ask::post(&target).body("5 EUR"),
                    _ => Ask::post(&target).key(&target).body("5 EUR"),
                };
                wire.say(ask.bytes()).await;
                let Some(answer) = wire.hear().await else {
                    wire = Wire::to(address).await;
                    continue;
                };
                mixed += usize::from(answer.status == 200 && answer.text() != target);
            }
            mixed
        })
    });
    let mut mixed = 0;
    for client in clients.collect::<Vec<_>>() {
        mixed += client.await.unwrap();
    }
    let mut targets: Vec<_> = upstream.seen().into_iter().map(|seen| seen.target).collect();
    let all = targets.len();
    targets.sort();
    targets.dedup();
    assert_eq!((mixed, all - targets.len()), (0, 0), "of {all}");
}
