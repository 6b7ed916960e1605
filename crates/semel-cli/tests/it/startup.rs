//! A gateway listens only once it can serve, and logs upstreams that it cannot reach.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

use crate::harness::{
    Reserved, ScriptedReply, Setup, TestRequest, TestUpstream, request_to, until,
};

/// A server that accepts connections and never replies, and a setup with a store there.
async fn silent_store() -> (TcpListener, Setup) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = format!("redis://{}", silent.local_addr().unwrap());
    let setup = Setup::new().flag("--upstream", "http://127.0.0.1:9").flag("--store", &store);
    (silent, setup.flag("--namespace", "starting").flag("--admin", "127.0.0.1:0"))
}

#[tokio::test]
async fn a_gateway_does_not_listen_before_its_store_is_open() {
    let (silent, setup) = silent_store().await;
    // A loopback address that no other test uses, so the port is free there.
    let listen: SocketAddr = ([127, 81, 3, 7], silent.local_addr().unwrap().port()).into();
    let mut starting = setup.flag("--listen", &listen.to_string()).begin();
    let admin = starting.admin().await;
    let _opening = silent.accept().await.unwrap();
    let refused = TcpStream::connect(listen).await.unwrap_err();
    let ready = request_to(admin, TestRequest::get("/readyz")).await;
    let healthy = request_to(admin, TestRequest::get("/healthz")).await.status;
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!((ready.status, &*ready.text()), (503, "the store is being opened\n"));
    assert_eq!(healthy, 200);
    assert!(!starting.stderr().contains("listening on"), "{}", starting.stderr());
    // SIGTERM ends it before the store is open, too.
    starting.sigterm();
    assert_eq!(starting.wait_exit().await, Some(0));
}

/// Reading a long log takes a while. Opening a pipe without a writer, as here, never ends.
#[tokio::test]
async fn a_gateway_that_opens_a_folder_ends_on_sigterm() {
    let setup = Setup::new().flag("--upstream", "http://127.0.0.1:9").embedded();
    let setup = setup.flag("--admin", "127.0.0.1:0");
    let made = std::process::Command::new("mkfifo").arg(setup.folder().join("data")).status();
    assert!(made.unwrap().success());
    let mut starting = setup.begin();
    let admin = starting.admin().await;
    let ready = request_to(admin, TestRequest::get("/readyz")).await;
    assert_eq!((ready.status, &*ready.text()), (503, "the store is being opened\n"));
    starting.sigterm();
    assert_eq!(starting.wait_exit().await, Some(0));
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_named_at_the_start() {
    let (gone, there) = (Reserved::new(), TestUpstream::counting().await);
    let config = format!("[upstreams.billing]\nurl = \"http://{}\"\n", gone.address());
    let gateway = Setup::to(&there).config(&config).start().await;
    let words = "upstream cannot be reached";
    until("it is logged", async || gateway.stderr().contains(words)).await;
    let log = gateway.stderr();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(words)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("billing"), "{log}");
    assert!(lines[0].contains(&gone.address().to_string()), "{log}");
}

#[tokio::test]
async fn readiness_needs_upstreams_where_that_is_set() {
    let gone = Reserved::new();
    let setup = Setup::new().flag("--upstream", &format!("http://{}", gone.address()));
    let setup = setup.flag("--admin", "127.0.0.1:0");
    let mut without = setup.start().await;
    let mut with = setup.clone().switch("--ready-needs-upstreams").start().await;
    let (without, with) = (without.admin().await, with.admin().await);
    assert_eq!(request_to(without, TestRequest::get("/readyz")).await.status, 200);
    let ready = request_to(with, TestRequest::get("/readyz")).await;
    let text = "upstream default cannot be reached\n";
    assert_eq!((ready.status, &*ready.text()), (503, text));
    let _there = gone.start(|_| ScriptedReply::ok("hello"));
    until("it is ready", async || {
        request_to(with, TestRequest::get("/readyz")).await.status == 200
    })
    .await;
}
