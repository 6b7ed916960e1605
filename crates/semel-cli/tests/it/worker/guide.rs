//! The handler of docs/WORKER.md works as the guide says.

use std::process::Stdio;

use semel_servers::free_port;
use tokio::net::TcpStream;

use crate::harness::{JetStream, KillOnDrop, WorkerSetup, until};

const GUIDE: &str = include_str!("../../../../../docs/WORKER.md");

/// The block of Python in the guide.
fn program() -> &'static str {
    let (_, rest) = GUIDE.split_once("```python\n").expect("the guide has a handler");
    rest.split_once("```").expect("the block ends").0
}

#[tokio::test]
async fn the_python_handler_of_the_guide_handles_an_event_once() {
    let setup = WorkerSetup::bare();
    let port = free_port().unwrap();
    assert!(program().contains("3000"));
    let program = program().replace("3000", &port.to_string());
    let printed = setup.folder().join("printed");
    let mut python = std::process::Command::new("python3");
    python
        .arg("-c")
        .arg(program)
        .stdout(std::fs::File::create(&printed).unwrap())
        .stderr(Stdio::null());
    let _handler = KillOnDrop(python.spawn().expect("python3 is there"));
    until("the handler listens", async || TcpStream::connect(("127.0.0.1", port)).await.is_ok())
        .await;

    let stream = JetStream::new().await;
    // Only the address of the handler is another one.
    let setup = setup
        .flag("--source", &stream.url())
        .flag("--handler", &format!("http://127.0.0.1:{port}/events"))
        .flag("--dead-letter", "file:dead-letters");
    let worker = setup.start().await;
    let headers = [("event_id", "order-42"), ("event_type", "order.placed")];
    for _ in 0..2 {
        stream.publish_with(&headers, "{\"order\":\"order-42\"}").await;
    }
    // Two threads of Python that print at the same time would mix their lines.
    stream.until_settled().await;
    stream.publish_with(&[("event_id", "wrong")], "{\"other\":1}").await;
    stream.until_settled().await;
    let text = std::fs::read_to_string(&printed).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("order-42")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].starts_with("order.placed {'order': 'order-42'} "), "{text}");
    assert_eq!(setup.listed().await.len(), 1, "the other is a dead letter");
    worker.stop().await;
}
