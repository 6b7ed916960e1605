//! Every fault does what its name says, to a server that echoes.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use semel_faults::{Fault, Proxy};

/// Longer than anything here takes.
const BOUND: Duration = Duration::from_secs(20);
/// So long nothing comes: then nothing will.
const SILENCE: Duration = Duration::from_millis(200);

/// Echoes, and tells what it heard.
fn echo() -> (u16, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heard) = mpsc::channel();
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
    (port, heard)
}

fn start() -> (Proxy, mpsc::Receiver<Vec<u8>>) {
    let (port, heard) = echo();
    (Proxy::start(port).unwrap(), heard)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream
}

fn say(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
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
    let (proxy, _heard) = start();
    let mut stream = connect(&proxy);
    assert_eq!(say(&mut stream, "one").unwrap(), "one");
    assert_eq!(say(&mut stream, "two").unwrap(), "two");
    let counts = proxy.counts();
    assert_eq!((counts.accepted, counts.requests, counts.replies), (1, 2, 2));
}

#[test]
fn a_cut_resets_what_is_open_and_nothing_else() {
    let (proxy, _heard) = start();
    let mut stream = connect(&proxy);
    say(&mut stream, "one").unwrap();
    proxy.cut();
    assert!(is_reset(&mut stream));
    assert_eq!(say(&mut connect(&proxy), "two").unwrap(), "two");
    assert_eq!(proxy.counts().cut, 1);
}

#[test]
fn a_black_hole_swallows_old_and_new_connections_until_it_ends() {
    let (proxy, heard) = start();
    let mut old = connect(&proxy);
    say(&mut old, "one").unwrap();
    proxy.set(Fault::BlackHole);
    let mut new = connect(&proxy);
    for stream in [&mut old, &mut new] {
        stream.write_all(b"lost").unwrap();
        assert!(is_silent(stream));
    }
    assert_eq!(proxy.counts().lost_requests, 2);
    assert_eq!(heard.try_iter().count(), 1);
    proxy.set(Fault::None);
    // What was swallowed is missing: neither may go on.
    assert!(is_reset(&mut old) && is_reset(&mut new));
    assert_eq!(say(&mut connect(&proxy), "two").unwrap(), "two");
}

#[test]
fn an_untouched_connection_outlives_a_black_hole() {
    let (proxy, _heard) = start();
    let mut stream = connect(&proxy);
    say(&mut stream, "one").unwrap();
    proxy.set(Fault::BlackHole);
    proxy.set(Fault::None);
    assert_eq!(say(&mut stream, "two").unwrap(), "two");
}

#[test]
fn one_way_requests_arrive_and_replies_do_not() {
    let (proxy, heard) = start();
    let mut stream = connect(&proxy);
    proxy.set(Fault::OneWay);
    stream.write_all(b"heard").unwrap();
    assert_eq!(heard.recv_timeout(BOUND).unwrap(), b"heard");
    stream.write_all(b"heard again").unwrap();
    assert_eq!(heard.recv_timeout(BOUND).unwrap(), b"heard again");
    assert!(is_silent(&mut stream));
    assert_eq!(proxy.counts().lost_replies, 2);
    proxy.set(Fault::None);
    assert!(is_reset(&mut stream));
}

#[test]
fn held_bytes_arrive_late_even_when_their_caller_has_left() {
    let (proxy, heard) = start();
    let mut stream = connect(&proxy);
    say(&mut stream, "one").unwrap();
    proxy.set(Fault::Hold);
    stream.write_all(b"late").unwrap();
    assert!(is_silent(&mut stream));
    drop(stream);
    assert_eq!(heard.try_iter().count(), 1);
    proxy.set(Fault::None);
    assert_eq!(heard.recv_timeout(BOUND).unwrap(), b"late");
}

#[test]
fn slow_is_late_both_ways() {
    let (proxy, _heard) = start();
    let mut stream = connect(&proxy);
    proxy.set(Fault::Slow(Duration::from_millis(60)));
    let started = Instant::now();
    assert_eq!(say(&mut stream, "one").unwrap(), "one");
    assert!(started.elapsed() >= Duration::from_millis(120));
}

#[test]
fn refused_are_new_connections_only() {
    let (proxy, _heard) = start();
    let mut old = connect(&proxy);
    say(&mut old, "one").unwrap();
    proxy.set(Fault::Refuse);
    let new = TcpStream::connect(("127.0.0.1", proxy.port()));
    assert!(new.is_err() || is_reset(&mut new.unwrap()));
    assert_eq!(say(&mut old, "two").unwrap(), "two");
}

#[test]
fn a_server_that_is_not_there_resets() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = Proxy::start(port).unwrap();
    assert!(is_reset(&mut connect(&proxy)));
}

#[test]
fn a_number_of_replies_is_lost() {
    let (proxy, heard) = start();
    proxy.lose_replies(2);
    for _ in 0..2 {
        assert!(say(&mut connect(&proxy), "heard").is_err());
        assert_eq!(heard.recv_timeout(BOUND).unwrap(), b"heard");
    }
    assert_eq!(say(&mut connect(&proxy), "answered").unwrap(), "answered");
    assert_eq!((proxy.counts().lost_replies, proxy.counts().cut), (2, 2));
}

#[test]
fn the_reply_to_one_request_is_lost() {
    let (proxy, heard) = start();
    proxy.lose_reply_to("needle");
    let (mut one, mut other) = (connect(&proxy), connect(&proxy));
    assert_eq!(say(&mut one, "hay").unwrap(), "hay");
    assert!(say(&mut other, "hay with a needle in it").is_err());
    assert_eq!(heard.try_iter().count(), 2);
    assert_eq!(say(&mut one, "needle").unwrap(), "needle");
    assert_eq!(proxy.traps_left(), 0);
}

#[test]
fn a_dropped_proxy_closes_everything() {
    let (proxy, _heard) = start();
    let mut stream = connect(&proxy);
    say(&mut stream, "one").unwrap();
    let port = proxy.port();
    drop(proxy);
    assert!(stream.read(&mut [0]).map_or(true, |length| length == 0));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
