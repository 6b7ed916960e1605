//! The service behind the gateway: creates charges, and fails as the metadata of a request say.
//!
//! It ignores idempotency keys, with the exception of one case: every call is an effect.

use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::sdk::case::SdkCase;
use crate::sdk::http::{UpstreamRequest, respond};
use crate::sdk::orders::{OrderLog, OrderRecord, UpstreamAction};
use crate::sdk::urlencoded::field;

/// Longer than the timeout of the impatient client, which is one second, and shorter than all its attempts.
const LATE: Duration = Duration::from_secs(2);

/// Long enough for a second call to arrive while the first runs.
const BUSY: Duration = Duration::from_millis(500);

/// Paths, with the prefix of ids and the type of the objects created there.
const KINDS: [(&str, &str, &str); 3] = [
    ("/v1/charges", "ch", "charge"),
    ("/v1/payment_intents", "pi", "payment_intent"),
    ("/v1/customers", "cus", "customer"),
];

/// A running upstream. Dropping it stops it.
pub(crate) struct ChargeUpstream {
    address: SocketAddr,
    state: Arc<UpstreamState>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct UpstreamState {
    orders: Mutex<OrderLog>,
    closing: AtomicBool,
}

impl ChargeUpstream {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(UpstreamState::default());
        let accepting = thread::spawn({
            let state = Arc::clone(&state);
            move || state.accept(&listener)
        });
        Ok(Self { address, state, accepting: Some(accepting) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The calls and effects of an order.
    pub(crate) fn record(&self, order: &str) -> OrderRecord {
        self.state.orders().record(order)
    }
}

impl Drop for ChargeUpstream {
    fn drop(&mut self) {
        self.state.closing.store(true, Ordering::SeqCst);
        // A connection wakes the accepting thread, which then reads the flag. Other connections end with their clients.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            let _ = accepting.join();
        }
    }
}

impl UpstreamState {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.closing.load(Ordering::SeqCst) {
                return;
            }
            let state = Arc::clone(self);
            thread::spawn(move || {
                // An error is expected: in some cases the client closes the connection.
                let _ = state.serve(&mut BufReader::new(stream));
            });
        }
    }

    fn serve(&self, stream: &mut BufReader<TcpStream>) -> Result<()> {
        while let Some(request) = UpstreamRequest::read(stream)? {
            let kind = KINDS.iter().find(|(path, ..)| *path == request.path);
            let Some((_, prefix, object)) = kind.filter(|_| request.method == "POST") else {
                respond(stream.get_mut(), "404 Not Found", &error("no such resource"))?;
                continue;
            };
            let case = case(&request);
            match self.call(case, &request, prefix) {
                UpstreamAction::CloseConnection => return Ok(()),
                UpstreamAction::Refuse => {
                    respond(stream.get_mut(), "503 Service Unavailable", &error("not now"))?;
                }
                UpstreamAction::Answer(id) => {
                    thread::sleep(delay(case));
                    respond(stream.get_mut(), "200 OK", &json!({ "id": id, "object": object }))?;
                }
            }
        }
        Ok(())
    }

    fn call(&self, case: SdkCase, request: &UpstreamRequest, prefix: &str) -> UpstreamAction {
        let order = field(&request.body, "metadata[order]").unwrap_or_default();
        let key = request.header("idempotency-key").unwrap_or_default();
        self.orders().call(case, &order, key, prefix)
    }

    fn orders(&self) -> MutexGuard<'_, OrderLog> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn case(request: &UpstreamRequest) -> SdkCase {
    let name = field(&request.body, "metadata[case]").unwrap_or_default();
    SdkCase::from_name(&name).unwrap_or(SdkCase::Plain)
}

fn delay(case: SdkCase) -> Duration {
    match case {
        SdkCase::Slow => LATE,
        SdkCase::Concurrent => BUSY,
        SdkCase::Plain | SdkCase::FailFirst | SdkCase::DropFirst | SdkCase::Mismatch => {
            Duration::ZERO
        }
    }
}

fn error(message: &str) -> serde_json::Value {
    json!({ "error": { "type": "api_error", "message": message } })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn post(upstream: &ChargeUpstream, case: &str) -> String {
        let body = format!("metadata[case]={case}&metadata[order]=o-{case}");
        let mut stream = TcpStream::connect(upstream.address()).unwrap();
        let length = body.len();
        let head = format!("POST /v1/charges HTTP/1.1\r\nContent-Length: {length}\r\n");
        let request = format!("{head}Idempotency-Key: k\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_first_attempt_fails_on_request_and_the_second_succeeds() {
        let upstream = ChargeUpstream::start().unwrap();
        assert!(post(&upstream, "fail-first").starts_with("HTTP/1.1 503"));
        assert!(post(&upstream, "fail-first").ends_with(r#"{"id":"ch_1","object":"charge"}"#));
        let record = upstream.record("o-fail-first");
        assert_eq!((record.calls, record.ids.len(), record.keys.len()), (2, 1, 1));
    }

    #[test]
    fn a_dropped_attempt_has_its_effect_but_gets_no_response() {
        let upstream = ChargeUpstream::start().unwrap();
        assert_eq!(post(&upstream, "drop-first"), "");
        assert_eq!(upstream.record("o-drop-first").ids, ["ch_1"]);
    }
}
