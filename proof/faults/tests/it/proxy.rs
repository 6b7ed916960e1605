//! Every fault does what its name says, to a server that echoes.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use semel_faults::{Fault, FaultProxy};

/// Longer than anything here takes.
const BOUND: Duration = Duration::from_secs(20);
/// After this time without bytes, none will come.
const SILENCE: Duration = Duration::from_millis(200);

/// Starts a server that echoes, and a channel with the bytes that it received.
fn echo() -> (u16, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            thread::spawn(move || {
                let mut piece = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut piece) {
                    let _ = sender.send(piece[..length].to_vec());
                    if stream.write_all(&piece[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, received)
}

fn start() -> (FaultProxy, mpsc::Receiver<Vec<u8>>) {
    let (port, received) = echo();
    (FaultProxy::start(port).unwrap(), received)
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream
}

fn send(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
    stream.write_all(text.as_bytes())?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8(answer).unwrap())
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(Some(BOUND)).unwrap();
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn is_reset(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn without_a_fault_everything_passes() {
    let (proxy, _received) = start();
    let mut stream = connect(&proxy);
    assert_eq!(send(&mut stream, "one").unwrap(), "one");
    assert_eq!(send(&mut stream, "two").unwrap(), "two");
    let counts = proxy.counts();
    assert_eq!((counts.accepted, counts.requests, counts.replies), (1, 2, 2));
}

#[test]
fn a_cut_resets_what_is_open_and_nothing_else() {
    let (proxy, _received) = start();
    let mut stream = connect(&proxy);
    send(&mut stream, "one").unwrap();
    proxy.cut();
    assert!(is_reset(&mut stream));
    assert_eq!(send(&mut connect(&proxy), "two").unwrap(), "two");
    assert_eq!(proxy.counts().cut, 1);
}

#[test]
fn a_black_hole_swallows_old_and_new_connections_until_it_ends() {
    let (proxy, received) = start();
    let mut old = connect(&proxy);
    send(&mut old, "one").unwrap();
    proxy.set(Fault::BlackHole);
    let mut new = connect(&proxy);
    for stream in [&mut old, &mut new] {
        stream.write_all(b"lost").unwrap();
        assert!(is_silent(stream));
    }
    assert_eq!(proxy.counts().lost_requests, 2);
    assert_eq!(received.try_iter().count(), 1);
    proxy.set(Fault::None);
    // Bytes were dropped: neither connection may continue.
    assert!(is_reset(&mut old) && is_reset(&mut new));
    assert_eq!(send(&mut connect(&proxy), "two").unwrap(), "two");
}

#[test]
fn an_untouched_connection_outlives_a_black_hole() {
    let (proxy, _received) = start();
    let mut stream = connect(&proxy);
    send(&mut stream, "one").unwrap();
    proxy.set(Fault::BlackHole);
    proxy.set(Fault::None);
    assert_eq!(send(&mut stream, "two").unwrap(), "two");
}

#[test]
fn one_way_requests_arrive_and_replies_do_not() {
    let (proxy, received) = start();
    let mut stream = connect(&proxy);
    proxy.set(Fault::OneWay);
    stream.write_all(b"received").unwrap();
    assert_eq!(received.recv_timeout(BOUND).unwrap(), b"received");
    stream.write_all(b"received again").unwrap();
    assert_eq!(received.recv_timeout(BOUND).unwrap(), b"received again");
    assert!(is_silent(&mut stream));
    assert_eq!(proxy.counts().lost_replies, 2);
    proxy.set(Fault::None);
    assert!(is_reset(&mut stream));
}

#[test]
fn held_bytes_arrive_late_even_when_their_caller_has_left() {
    let (proxy, received) = start();
    let mut stream = connect(&proxy);
    send(&mut stream, "one").unwrap();
    proxy.set(Fault::Hold);
    stream.write_all(b"late").unwrap();
    assert!(is_silent(&mut stream));
    drop(stream);
    assert_eq!(received.try_iter().count(), 1);
    proxy.set(Fault::None);
    assert_eq!(received.recv_timeout(BOUND).unwrap(), b"late");
}

#[test]
fn slow_delays_both_directions() {
    let (proxy, _received) = start();
    let mut stream = connect(&proxy);
    proxy.set(Fault::Slow(Duration::from_millis(60)));
    let started = Instant::now();
    assert_eq!(send(&mut stream, "one").unwrap(), "one");
    assert!(started.elapsed() >= Duration::from_millis(120));
}

#[test]
fn only_new_connections_are_refused() {
    let (proxy, _received) = start();
    let mut old = connect(&proxy);
    send(&mut old, "one").unwrap();
    proxy.set(Fault::Refuse);
    let new = TcpStream::connect(("127.0.0.1", proxy.port()));
    assert!(new.is_err() || is_reset(&mut new.unwrap()));
    assert_eq!(send(&mut old, "two").unwrap(), "two");
}

#[test]
fn a_missing_server_resets_connections() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = FaultProxy::start(port).unwrap();
    assert!(is_reset(&mut connect(&proxy)));
}

#[test]
fn the_next_replies_are_lost() {
    let (proxy, received) = start();
    proxy.lose_replies(2);
    for _ in 0..2 {
        assert!(send(&mut connect(&proxy), "received").is_err());
        assert_eq!(received.recv_timeout(BOUND).unwrap(), b"received");
    }
    assert_eq!(send(&mut connect(&proxy), "answered").unwrap(), "answered");
    assert_eq!((proxy.counts().lost_replies, proxy.counts().cut), (2, 2));
}

#[test]
fn the_reply_to_one_request_is_lost() {
    let (proxy, received) = start();
    proxy.lose_reply_to("needle");
    let (mut one, mut other) = (connect(&proxy), connect(&proxy));
    assert_eq!(send(&mut one, "hay").unwrap(), "hay");
    assert!(send(&mut other, "hay with a needle in it").is_err());
    assert_eq!(received.try_iter().count(), 2);
    assert_eq!(send(&mut one, "needle").unwrap(), "needle");
    assert_eq!(proxy.traps_left(), 0);
}

#[test]
fn a_dropped_proxy_closes_everything() {
    let (proxy, _received) = start();
    let mut stream = connect(&proxy);
    send(&mut stream, "one").unwrap();
    let port = proxy.port();
    drop(proxy);
    assert!(stream.read(&mut [0]).map_or(true, |length| length == 0));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
