//! Claim, run, record, replay, in as few words as the flaws need.

use std::{
    collections::{HashMap, hash_map::Entry},
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use semel_conformance::http::TestUpstream;
use tokio::sync::watch;
use tower_service::Service;

use super::Flaw;

type TestResponse = Response<Full<Bytes>>;
/// What is recorded of an answer, and told to those who wait for it.
type Told = Option<(StatusCode, HeaderMap, Bytes)>;

const KEPT: [&str; 4] = ["content-type", "location", "etag", "link"];

#[derive(Clone)]
pub(super) struct Guard {
    upstream: TestUpstream,
    flaw: Flaw,
    records: Arc<Mutex<HashMap<String, Record>>>,
}

#[derive(Clone)]
struct Record {
    fingerprint: Vec<u8>,
    told: Arc<watch::Sender<Told>>,
}

enum Claim {
    Granted(Record),
    Taken(Record),
    Mismatch,
}

impl Guard {
    pub(super) fn new(upstream: TestUpstream, flaw: Flaw) -> Self {
        Self { upstream, flaw, records: Arc::default() }
    }

    async fn enter(self, request: Request<Incoming>) -> TestResponse {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let safe = [Method::GET, Method::HEAD].contains(&parts.method);
        if safe || self.flaw == Flaw::GuardsNothing {
            return self.run(parts, body).await;
        }
        let (key, sent) = (self.key(&parts), parts.headers["idempotency-key"].clone());
        let mut answer = match self.claim(&key, self.fingerprint(&parts, &body)) {
            Claim::Granted(record) => self.drive(key, record, parts, body).await,
            Claim::Mismatch => self.mismatch(&key),
            Claim::Taken(record) => {
                let told = record.told.subscribe().wait_for(Option::is_some).await.unwrap().clone();
                let (_, _, recorded) = told.as_ref().unwrap();
                if recorded.is_empty() && self.flaw == Flaw::RunsAgainOnEmptyBodies {
                    return self.run(parts, body).await;
                }
                replay(told)
            }
        };
        answer.headers_mut().insert("idempotency-key", sent);
        answer
    }

    fn key(&self, parts: &Parts) -> String {
        let text = |name| String::from_utf8_lossy(parts.headers[name].as_bytes()).into_owned();
        let principal = match self.flaw {
            Flaw::LeavesThePrincipalOut => String::new(),
            _ => text("authorization"),
        };
        let key = match self.flaw {
            Flaw::LowersKeys => text("idempotency-key").to_lowercase(),
            _ => text("idempotency-key"),
        };
        format!("{principal} {} {} {key}", parts.method, parts.uri.path())
    }

    fn fingerprint(&self, parts: &Parts, body: &Bytes) -> Vec<u8> {
        let sized = parts.headers.contains_key("content-length");
        let ignored = match self.flaw {
            Flaw::IgnoresTheBody => true,
            Flaw::ComparesSizedBodiesOnly => !sized,
            _ => false,
        };
        let target = parts.uri.to_string().into_bytes();
        [target, if ignored { Vec::new() } else { body.to_vec() }].concat()
    }

    fn claim(&self, key: &str, fingerprint: Vec<u8>) -> Claim {
        let fresh = Record { fingerprint, told: Arc::new(watch::channel(None).0) };
        match self.records.lock().unwrap().entry(key.to_owned()) {
            Entry::Occupied(record) if record.get().fingerprint != fresh.fingerprint => {
                Claim::Mismatch
            }
            Entry::Occupied(mut record)
                if self.flaw == Flaw::ClaimsNothing && record.get().told.borrow().is_none() =>
            {
                record.insert(fresh.clone());
                Claim::Granted(fresh)
            }
            Entry::Occupied(record) => Claim::Taken(record.get().clone()),
            Entry::Vacant(place) => Claim::Granted(place.insert(fresh).clone()),
        }
    }

    async fn drive(self, key: String, record: Record, parts: Parts, body: Bytes) -> TestResponse {
        let releases = self.flaw == Flaw::DropsTheWorkOnHangUp;
        let release = Release { guard: self.clone(), key: key.clone(), armed: releases };
        let work = self.settle(key, record, parts, body);
        let answer = match releases {
            true => work.await,
            false => tokio::spawn(work).await.unwrap(),
        };
        release.disarm();
        answer
    }

    async fn settle(self, key: String, record: Record, parts: Parts, body: Bytes) -> TestResponse {
        let answer = self.run(parts, body).await;
        let failed = answer.status().is_server_error() || answer.status() == 408;
        if failed && self.flaw != Flaw::KeepsServerErrors {
            self.records.lock().unwrap().remove(&key);
        }
        record.told.send_replace(self.told(&answer).await);
        answer
    }

    async fn run(&self, parts: Parts, body: Bytes) -> TestResponse {
        let request = Request::from_parts(parts, Full::new(body));
        let answer = self.upstream.clone().call(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(parts, Full::new(body))
    }

    async fn told(&self, answer: &TestResponse) -> Told {
        let mut kept = HeaderMap::new();
        let cookie = (self.flaw == Flaw::ReplaysCookies).then_some("set-cookie");
        for name in KEPT.into_iter().chain(cookie) {
            for value in answer.headers().get_all(name) {
                match self.flaw {
                    Flaw::KeepsTheLastOfRepeatedHeaders => drop(kept.insert(name, value.clone())),
                    _ => drop(kept.append(name, value.clone())),
                }
            }
        }
        let body = answer.body().clone().collect().await.unwrap().to_bytes();
        let body = match self.flaw {
            Flaw::ReadsBodiesAsText => String::from_utf8_lossy(&body).into_owned().into(),
            _ => body,
        };
        Some((answer.status(), kept, body))
    }

    fn mismatch(&self, key: &str) -> TestResponse {
        let answer = mismatch();
        if self.flaw == Flaw::RecordsItsOwnAnswers {
            let told = (answer.status(), answer.headers().clone(), Bytes::new());
            self.records.lock().unwrap()[key].told.send_replace(Some(told));
        }
        answer
    }
}

/// Gives a key back when its caller hangs up: the very thing a door must not do.
struct Release {
    guard: Guard,
    key: String,
    armed: bool,
}

impl Release {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if self.armed {
            self.guard.records.lock().unwrap().remove(&self.key);
        }
    }
}

fn replay(told: Told) -> TestResponse {
    let (status, headers, body) = told.unwrap();
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    answer.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
    answer
}

fn mismatch() -> TestResponse {
    let body = r#"{"type":"urn:fingerprint-mismatch","title":"t","status":409,"detail":"d",
        "error":{"type":"e","code":"c","message":"m"}}"#;
    Response::builder()
        .status(409)
        .header("semel-status", "fingerprint-mismatch")
        .header("stripe-should-retry", "false")
        .header("cache-control", "no-store")
        .header("content-type", "application/problem+json")
        .body(Full::from(body))
        .unwrap()
}

impl Service<Request<Incoming>> for Guard {
    type Response = TestResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<TestResponse, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.enter(request).await) })
    }
}
