//! Uploads whose response arrives before they have ended.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::harness::{PATIENCE, Setup, TestRequest, TestUpstream, accept, request_to, until};

async fn listener() -> (TcpListener, Setup) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let setup =
        Setup::new().flag("--upstream", &format!("http://{}", listener.local_addr().unwrap()));
    (listener, setup)
}

/// Reads the head, and returns how many bytes of the body arrived with it.
async fn head(stream: &mut TcpStream) -> usize {
    timeout(PATIENCE, read_head(stream)).await.expect("a head")
}

async fn read_head(stream: &mut TcpStream) -> usize {
    let mut received = Vec::new();
    loop {
        if let Some(at) = received.windows(4).position(|it| it == b"\r\n\r\n") {
            return received.len() - at - 4;
        }
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0);
        received.extend_from_slice(&piece[..read]);
    }
}

/// The task of an upload that outlasts its response must not keep its connection forever.
#[tokio::test]
async fn an_early_response_leaves_no_connection_behind() {
    let (listener, setup) = listener().await;
    let gateway = setup.config("[timeouts]\nidle = \"300ms\"\n").start().await;
    let body = vec![b'x'; 1000];
    let request = TestRequest::post("/upload").body(body.clone());
    let mut connection = gateway.connection().await;
    connection.write(request.head()).await;
    connection.write(&body[..10]).await;
    let mut up = accept(&listener).await;
    let mut got = head(&mut up).await;
    up.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    assert_eq!(connection.read_response().await.unwrap().text(), "ok");
    connection.write(&body[10..]).await;
    let mut piece = [0; 1024];
    while got < body.len() {
        got += up.read(&mut piece).await.unwrap();
    }
    drop(connection);
    let end = timeout(PATIENCE, up.read(&mut piece)).await;
    assert_eq!(end.expect("the connection cannot be used again, and is closed").unwrap_or(0), 0);
}

/// An upstream that has answered and reads no more must not keep the resources of a client that is gone.
#[tokio::test]
async fn an_upload_that_the_upstream_does_not_read_ends_with_its_client() {
    let (listener, setup) = listener().await;
    let setup = setup.config("[timeouts]\nbody = \"300ms\"\n").flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    // Created before the connection: the gateway does not wait forever for the first byte.
    let upload = TestRequest::post("/upload").body(vec![b'x'; 64 << 20]).bytes();
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let writing = tokio::spawn(async move {
        let _ = to.write_all(&upload).await;
    });
    let mut up = accept(&listener).await;
    head(&mut up).await;
    up.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    let mut received = [0; 4096];
    let read = timeout(PATIENCE, from.read(&mut received)).await.unwrap().unwrap();
    assert!(received[..read].starts_with(b"HTTP/1.1 200"));
    // Time for the upload to block. With less time, the test checks less.
    sleep(Duration::from_secs(1)).await;
    writing.abort();
    let _ = writing.await;
    drop(from);
    until("the client's place is free", async || connections(admin).await.ends_with(" 0")).await;
}

async fn connections(admin: SocketAddr) -> String {
    let page = request_to(admin, TestRequest::get("/metrics")).await.text();
    page.lines().find(|it| it.starts_with("semel_gateway_connections")).unwrap_or("none").to_owned()
}

/// A body in memory is not yet sent.
#[tokio::test]
async fn an_early_response_does_not_cut_off_a_keyed_upload() {
    let (listener, setup) = listener().await;
    let gateway = setup.flag("--max-body", "31MiB").start().await;
    let size = 24 << 20;
    let request = TestRequest::post("/upload").key("k").body(vec![b'x'; size]);
    let mut connection = gateway.connection().await;
    let client = tokio::spawn(async move {
        connection.write(request.bytes()).await;
        connection.read_response().await
    });
    let mut up = accept(&listener).await;
    let mut got = head(&mut up).await;
    up.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let response = client.await.unwrap().unwrap();
    let mut piece = vec![0; 1 << 16];
    while got < size {
        match up.read(&mut piece).await {
            Ok(read) if read > 0 => got += read,
            _ => break,
        }
    }
    assert_eq!(got, size, "the caller got {}", response.status);
}

/// The process must not end before it has forwarded what a client has sent.
#[tokio::test]
async fn a_shutdown_does_not_cut_off_an_upload_that_was_answered_early() {
    let (listener, setup) = listener().await;
    let mut gateway = setup.start().await;
    let size = 24 << 20;
    let request = TestRequest::post("/upload").body(vec![b'x'; size]);
    let mut connection = gateway.connection().await;
    let client = tokio::spawn(async move {
        connection.write(request.bytes()).await;
        connection.read_response().await
    });
    let mut up = accept(&listener).await;
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
    let response = client.await.unwrap().map(|it| it.status);
    let code = gateway.wait_exit(PATIENCE).await;
    assert_eq!(got, size, "the caller got {response:?}, exit code {code:?}");
}

/// The gateway waits for the client here, so the limits for clients apply.
#[tokio::test]
async fn an_upload_that_pauses_is_not_the_upstreams_delay() {
    let upstream = TestUpstream::counting().await;
    let config = "[timeouts]\nheader = \"500ms\"\n[client]\nbody = \"10s\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    let mut connection = gateway.connection().await;
    connection.write(TestRequest::post("/upload").body("0123456789").head()).await;
    connection.write("01234").await;
    sleep(Duration::from_millis(1500)).await;
    connection.write("56789").await;
    connection.read_response().await.unwrap().assert_ran("run 1");
}

/// The client still sends while the response has begun.
#[tokio::test]
async fn a_response_that_waits_for_the_client_is_not_late() {
    let (listener, setup) = listener().await;
    let config = "[timeouts]\nbody = \"500ms\"\n[client]\nbody = \"10s\"\n";
    let gateway = setup.config(config).start().await;
    let mut connection = gateway.connection().await;
    connection.write(TestRequest::post("/echo").body("0123456789").head()).await;
    connection.write("01234").await;
    let mut up = accept(&listener).await;
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
    connection.write("56789").await;
    let response = connection.read_response().await.unwrap();
    assert!(response.whole && response.text() == "0123456789", "{response:?}");
}

/// The failed write consumes the reset, and the read then sees an orderly end.
#[tokio::test]
async fn a_response_that_was_reset_is_not_recorded_as_whole() {
    let (listener, setup) = listener().await;
    let gateway = setup.flag("--max-body", "31MiB").start().await;
    for key in ["a", "b", "c", "d", "e"] {
        let big = TestRequest::post("/upload").key(key).body(vec![b'x'; 8 << 20]);
        let mut connection = gateway.connection().await;
        let client = tokio::spawn(async move {
            connection.write(big.bytes()).await;
            connection.read_response().await
        });
        let mut up = accept(&listener).await;
        let mut got = head(&mut up).await;
        let mut piece = vec![0; 1 << 16];
        while got < 1 << 20 {
            got += up.read(&mut piece).await.unwrap();
        }
        up.write_all(b"HTTP/1.1 200 OK\r\n\r\npart of an ans").await.unwrap();
        up.set_zero_linger().unwrap();
        drop(up);
        let response = client.await.unwrap();
        let is_whole = response.as_ref().is_some_and(|it| it.whole && it.status == 200);
        assert!(!is_whole, "half an answer with a length of its own, and recorded: {response:?}");
    }
}
