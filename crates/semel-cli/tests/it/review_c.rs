//! What a review of the latest changes found.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::harness::{Ask, PATIENCE, Reply, Setup, Upstream, ask, run, until};

async fn listener() -> (TcpListener, Setup) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let setup =
        Setup::new().flag("--upstream", &format!("http://{}", listener.local_addr().unwrap()));
    (listener, setup)
}

/// Reads the head, and answers how many bytes of the body came along.
async fn head(stream: &mut TcpStream) -> usize {
    let mut heard = Vec::new();
    loop {
        if let Some(at) = heard.windows(4).position(|it| it == b"\r\n\r\n") {
            return heard.len() - at - 4;
        }
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0);
        heard.extend_from_slice(&piece[..read]);
    }
}

/// The task of an upload that outlasts its answer keeps its connection for ever.
#[tokio::test]
async fn an_early_answer_leaves_no_connection_behind() {
    let (listener, setup) = listener().await;
    let gateway = setup.config("[timeouts]\nidle = \"300ms\"\n").start().await;
    let body = vec![b'x'; 1000];
    let ask = Ask::post("/upload").body(body.clone());
    let mut wire = gateway.wire().await;
    wire.say(ask.head()).await;
    wire.say(&body[..10]).await;
    let (mut up, _) = listener.accept().await.unwrap();
    let mut got = head(&mut up).await;
    up.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    assert_eq!(wire.hear().await.unwrap().text(), "ok");
    wire.say(&body[10..]).await;
    let mut piece = [0; 1024];
    while got < body.len() {
        got += up.read(&mut piece).await.unwrap();
    }
    drop(wire);
    let end = timeout(Duration::from_secs(4), up.read(&mut piece)).await;
    assert_eq!(end.expect("idle is 300ms, and nobody can use it again").unwrap_or(0), 0);
}

/// An upstream that answers and reads no more holds the client's place though the client is gone.
#[tokio::test]
async fn an_upload_that_nobody_takes_ends_when_its_client_is_gone() {
    let (listener, setup) = listener().await;
    let config = "shutdown_grace = \"1s\"\n[timeouts]\nidle = \"300ms\"\nbody = \"300ms\"\nheader = \"300ms\"\n\
                  [client]\nidle = \"300ms\"\nbody = \"300ms\"\n";
    let mut gateway = setup.config(config).flag("--admin", "127.0.0.1:0").start().await;
    let admin = gateway.admin().await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let writing = tokio::spawn(async move {
        let ask = Ask::post("/upload").body(vec![b'x'; 64 << 20]);
        let _ = to.write_all(&ask.bytes()).await;
    });
    let (mut up, _) = listener.accept().await.unwrap();
    head(&mut up).await;
    up.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    let mut heard = [0; 4096];
    let read = timeout(PATIENCE, from.read(&mut heard)).await.unwrap().unwrap();
    assert!(heard[..read].starts_with(b"HTTP/1.1 200"));
    sleep(Duration::from_secs(1)).await;
    writing.abort();
    let _ = writing.await;
    drop(from);
    let mut last = String::new();
    for _ in 0..80 {
        last = connections(admin).await;
        if last.ends_with(" 0") {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    gateway.sigterm();
    let code = gateway.wait_exit(PATIENCE).await;
    panic!("8 s after the client left: {last}; exit code at SIGTERM: {code:?}");
}

async fn connections(admin: SocketAddr) -> String {
    let page = ask(admin, Ask::get("/metrics")).await.text();
    page.lines().find(|it| it.starts_with("semel_gateway_connections")).unwrap_or("none").to_owned()
}

/// What is in memory is not yet sent.
#[tokio::test]
async fn an_early_answer_does_not_cut_off_a_keyed_upload() {
    let (listener, setup) = listener().await;
    let gateway = setup.flag("--max-body", "31MiB").start().await;
    let size = 24 << 20;
    let ask = Ask::post("/upload").key("k").body(vec![b'x'; size]);
    let mut wire = gateway.wire().await;
    let client = tokio::spawn(async move {
        wire.say(ask.bytes()).await;
        wire.hear().await
    });
    let (mut up, _) = listener.accept().await.unwrap();
    let mut got = head(&mut up).await;
    up.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let answer = client.await.unwrap().unwrap();
    let mut piece = vec![0; 1 << 16];
    while got < size {
        match up.read(&mut piece).await {
            Ok(read) if read > 0 => got += read,
            _ => break,
        }
    }
    assert_eq!(got, size, "the caller was told {}", answer.status);
}

#[tokio::test]
async fn an_upstream_does_not_decide_whether_our_store_is_well() {
    let upstream =
        Upstream::start(|_| Reply::with(503, "Semel-Status: store-unavailable\r\n", "")).await;
    let mut gateway = Setup::to(&upstream).flag("--admin", "127.0.0.1:0").start().await;
    let admin = gateway.admin().await;
    assert_eq!(ask(admin, Ask::get("/readyz")).await.status, 200);
    gateway.ask(Ask::get("/anything")).await;
    assert_eq!(ask(admin, Ask::get("/readyz")).await.status, 200);
}

#[tokio::test]
async fn a_challenge_of_the_upstream_is_its_own() {
    let upstream = Upstream::start(|_| {
        let headers = "Semel-Status: principal-missing\r\nWWW-Authenticate: Basic realm=\"x\"\r\n";
        Reply::with(401, headers, "")
    })
    .await;
    let gateway = Setup::to(&upstream).flag("--principal", "authorization").start().await;
    let answer = gateway.ask(Ask::get("/anything")).await;
    assert_eq!(answer.header("www-authenticate"), Some("Basic realm=\"x\""));
}

#[tokio::test]
async fn head_goes_where_get_goes() {
    let (default, reports) =
        (Upstream::counting().await, Upstream::start(|_| Reply::with(200, "", "")).await);
    let config = format!(
        "[upstreams.reports]\nurl = \"http://{}\"\n[[routes]]\nmatch = \"GET /reports\"\nupstream = \"reports\"\n",
        reports.address
    );
    let gateway = Setup::to(&default).config(&config).start().await;
    gateway.ask(Ask::get("/reports")).await;
    gateway.ask(Ask::head_of("/reports")).await;
    assert_eq!((default.count(), reports.count()), (0, 2));
}

#[tokio::test]
async fn the_last_line_of_a_second_signal_is_there() {
    let upstream = Upstream::gated().await;
    let mut missing = 0;
    for _ in 0..20 {
        let seen = upstream.count();
        let mut gateway = Setup::to(&upstream).start().await;
        let _wire = gateway.send(Ask::charge("k")).await;
        until("it runs", async || upstream.count() > seen).await;
        gateway.sigterm();
        until("it drains", async || gateway.stderr().contains("shutting down")).await;
        gateway.sigterm();
        assert_eq!(gateway.wait_exit(PATIENCE).await, Some(1));
        sleep(Duration::from_millis(100)).await;
        missing += usize::from(!gateway.stderr().contains("ended at once"));
    }
    assert_eq!(missing, 0, "of 20");
}

#[tokio::test]
async fn the_case_of_a_host_does_not_matter() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.ask(Ask::charge("k").host("shop.example")).await.assert_ran("run 1");
    gateway.ask(Ask::charge("k").host("Shop.Example")).await.assert_replay("run 1");
}

/// The process must not end before what a client has sent is on its way.
#[tokio::test]
async fn a_shutdown_does_not_cut_off_an_upload_that_was_answered_early() {
    let (listener, setup) = listener().await;
    let mut gateway = setup.start().await;
    let size = 24 << 20;
    let ask = Ask::post("/upload").body(vec![b'x'; size]);
    let mut wire = gateway.wire().await;
    let client = tokio::spawn(async move {
        wire.say(ask.bytes()).await;
        wire.hear().await
    });
    let (mut up, _) = listener.accept().await.unwrap();
    let mut got = head(&mut up).await;
    up.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    sleep(Duration::from_millis(300)).await;
    gateway.sigterm();
    let mut piece = vec![0; 1 << 16];
    while got < size {
        match up.read(&mut piece).await {
            Ok(read) if read > 0 => got += read,
            _ => break,
        }
        sleep(Duration::from_millis(20)).await;
    }
    let answer = client.await.unwrap().map(|it| it.status);
    let code = gateway.wait_exit(PATIENCE).await;
    assert_eq!(got, size, "the caller was told {answer:?}, exit code {code:?}");
}

/// What can be started is checked by the same rules as what is started.
#[tokio::test]
async fn a_check_finds_routes_that_are_one_in_two_spellings() {
    let folder = tempfile::tempdir().unwrap();
    for (one, other) in [("/a", "POST /a/"), ("/a", "POST /%61"), ("POST /a//b", "POST /a/b")] {
        let config = format!(
            "upstream = \"http://127.0.0.1:1\"\nprincipal = \"anonymous\"\nstore = \"memory:\"\n\
             [[routes]]\nmatch = \"{one}\"\n[[routes]]\nmatch = \"{other}\"\n"
        );
        std::fs::write(folder.path().join("semel.toml"), config).unwrap();
        let started = run(folder.path(), &["gateway", "--listen", "127.0.0.1:0"]).await;
        assert_ne!(started.code, Some(0), "{started:#?}");
        run(folder.path(), &["config", "check"]).await.assert_says(&[2], &["semel.toml:6"]);
    }
}

/// It is the client that is waited for, and it has the time of clients.
#[tokio::test]
async fn an_upload_that_pauses_is_not_the_upstreams_delay() {
    let upstream = Upstream::counting().await;
    let config = "[timeouts]\nheader = \"500ms\"\n[client]\nbody = \"10s\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    let mut wire = gateway.wire().await;
    wire.say(Ask::post("/upload").body("0123456789").head()).await;
    wire.say("01234").await;
    sleep(Duration::from_millis(1500)).await;
    wire.say("56789").await;
    wire.hear().await.unwrap().assert_ran("run 1");
}

/// The other way round: the client still sends while the answer has begun.
#[tokio::test]
async fn an_answer_that_waits_for_the_client_is_not_late() {
    let (listener, setup) = listener().await;
    let config = "[timeouts]\nbody = \"500ms\"\n[client]\nbody = \"10s\"\n";
    let gateway = setup.config(config).start().await;
    let mut wire = gateway.wire().await;
    wire.say(Ask::post("/echo").body("0123456789").head()).await;
    wire.say("01234").await;
    let (mut up, _) = listener.accept().await.unwrap();
    let mut got = head(&mut up).await;
    up.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234").await.unwrap();
    tokio::spawn(async move {
        let mut piece = [0; 64];
        while got < 10 {
            got += up.read(&mut piece).await.unwrap().max(1);
        }
        up.write_all(b"56789").await.unwrap();
        sleep(PATIENCE).await;
    });
    sleep(Duration::from_millis(1500)).await;
    wire.say("56789").await;
    let answer = wire.hear().await.unwrap();
    assert!(answer.whole && answer.text() == "0123456789", "{answer:?}");
}

/// New keys are written to files that have no name any more: a restart will not find them.
#[tokio::test]
async fn a_store_whose_folder_is_gone_does_not_become_well_by_a_new_key() {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).embedded().flag("--wait", "0s");
    let setup = setup.flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    std::fs::remove_dir_all(setup.folder().join("data")).unwrap();
    gateway.ask(Ask::charge("k")).await.assert_problem(503, "store-unavailable");
    assert_eq!(ask(admin, Ask::get("/readyz")).await.status, 503);
    let new = gateway.ask(Ask::charge("new")).await;
    let ready = ask(admin, Ask::get("/readyz")).await.status;
    let again = gateway.ask(Ask::charge("new")).await.status;
    gateway.sigkill().await;
    let after = setup.start().await.ask(Ask::charge("new")).await;
    let stored = new.header("idempotency-stored");
    let told = (new.status, stored, ready, again, after.status, after.is_replay());
    assert!(ready == 503 || after.is_replay(), "new key, stored, readyz, retry, after restart: {told:?}");
}

/// A folder that has records began with some secret, though nobody can say any more with which.
#[tokio::test]
async fn a_folder_with_records_does_not_take_any_secret() {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    gateway.sigkill().await;
    // As an older release leaves it, or a copy without hidden files.
    std::fs::remove_file(setup.folder().join("data/.hash-secret-check")).unwrap();
    let args = ["gateway", "--listen", "127.0.0.1:0", "--store", "file:data"];
    let args = [&args[..], &["--upstream", "http://127.0.0.1:1", "--principal", "anonymous"]];
    std::fs::write(setup.folder().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let args = [&args.concat()[..], &["--hash-secret-file", "secret"]].concat();
    let ended = timeout(Duration::from_secs(3), run(setup.folder(), &args)).await;
    let pinned = setup.folder().join("data/.hash-secret-check").exists();
    assert!(ended.is_ok() && !pinned, "it serves with another secret; pinned: {pinned}");
}

/// The write that notices the reset takes it away from the read, which then sees an orderly end.
#[tokio::test]
async fn an_answer_that_was_reset_is_not_recorded_as_whole() {
    let (listener, setup) = listener().await;
    let gateway = setup.flag("--max-body", "31MiB").start().await;
    for key in ["a", "b", "c", "d", "e"] {
        let big = Ask::post("/upload").key(key).body(vec![b'x'; 8 << 20]);
        let mut wire = gateway.wire().await;
        let client = tokio::spawn(async move {
            wire.say(big.bytes()).await;
            wire.hear().await
        });
        let (mut up, _) = listener.accept().await.unwrap();
        let mut got = head(&mut up).await;
        let mut piece = vec![0; 1 << 16];
        while got < 1 << 20 {
            got += up.read(&mut piece).await.unwrap();
        }
        up.write_all(b"HTTP/1.1 200 OK\r\n\r\npart of an ans").await.unwrap();
        up.set_zero_linger().unwrap();
        drop(up);
        let answer = client.await.unwrap();
        let is_whole = answer.as_ref().is_some_and(|it| it.whole && it.status == 200);
        assert!(!is_whole, "half an answer with a length of its own, and recorded: {answer:?}");
    }
}
