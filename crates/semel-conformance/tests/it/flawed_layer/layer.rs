//! A minimal layer: claim, run, record and replay, with one of the planted bugs.

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

use super::HttpFlaw;

type FullResponse = Response<Full<Bytes>>;
/// The recorded part of an answer, which waiters get too.
type RecordedAnswer = Option<(StatusCode, HeaderMap, Bytes)>;

const REPLAYED: [&str; 4] = ["content-type", "location", "etag", "link"];

#[derive(Clone)]
pub(super) struct FlawedLayer {
    upstream: TestUpstream,
    flaw: HttpFlaw,
    records: Arc<Mutex<HashMap<String, FlawedRecord>>>,
}

#[derive(Clone)]
struct FlawedRecord {
    fingerprint: Vec<u8>,
    recorded: Arc<watch::Sender<RecordedAnswer>>,
}

enum FlawedClaim {
    Granted(FlawedRecord),
    Taken(FlawedRecord),
    Mismatch,
}

impl FlawedLayer {
    pub(super) fn new(upstream: TestUpstream, flaw: HttpFlaw) -> Self {
        Self { upstream, flaw, records: Arc::default() }
    }

    async fn enter(self, request: Request<Incoming>) -> FullResponse {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let safe = [Method::GET, Method::HEAD].contains(&parts.method);
        if safe || self.flaw == HttpFlaw::ProtectsNothing {
            return self.run(parts, body).await;
        }
        let (key, sent) = (self.key(&parts), parts.headers["idempotency-key"].clone());
        let mut answer = match self.claim(&key, self.fingerprint(&parts, &body)) {
            FlawedClaim::Granted(record) => self.drive(key, record, parts, body).await,
            FlawedClaim::Mismatch => self.mismatch(&key),
            FlawedClaim::Taken(record) => {
                let recorded =
                    record.recorded.subscribe().wait_for(Option::is_some).await.unwrap().clone();
                let (_, _, recorded_body) = recorded.as_ref().unwrap();
                if recorded_body.is_empty() && self.flaw == HttpFlaw::RunsAgainOnEmptyBodies {
                    return self.run(parts, body).await;
                }
                replay(recorded)
            }
        };
        answer.headers_mut().insert("idempotency-key", sent);
        answer
    }

    fn key(&self, parts: &Parts) -> String {
        let text = |name| String::from_utf8_lossy(parts.headers[name].as_bytes()).into_owned();
        let principal = match self.flaw {
            HttpFlaw::LeavesThePrincipalOut => String::new(),
            _ => text("authorization"),
        };
        let key = match self.flaw {
            HttpFlaw::LowersKeys => text("idempotency-key").to_lowercase(),
            _ => text("idempotency-key"),
        };
        format!("{principal} {} {} {key}", parts.method, parts.uri.path())
    }

    fn fingerprint(&self, parts: &Parts, body: &Bytes) -> Vec<u8> {
        let sized = parts.headers.contains_key("content-length");
        let ignored = match self.flaw {
            HttpFlaw::IgnoresTheBody => true,
            HttpFlaw::ComparesSizedBodiesOnly => !sized,
            _ => false,
        };
        let target = parts.uri.to_string().into_bytes();
        [target, if ignored { Vec::new() } else { body.to_vec() }].concat()
    }

    fn claim(&self, key: &str, fingerprint: Vec<u8>) -> FlawedClaim {
        let fresh = FlawedRecord { fingerprint, recorded: Arc::new(watch::channel(None).0) };
        match self.records.lock().unwrap().entry(key.to_owned()) {
            Entry::Occupied(record) if record.get().fingerprint != fresh.fingerprint => {
                FlawedClaim::Mismatch
            }
            Entry::Occupied(mut record)
                if self.flaw == HttpFlaw::ClaimsNothing
                    && record.get().recorded.borrow().is_none() =>
            {
                record.insert(fresh.clone());
                FlawedClaim::Granted(fresh)
            }
            Entry::Occupied(record) => FlawedClaim::Taken(record.get().clone()),
            Entry::Vacant(place) => FlawedClaim::Granted(place.insert(fresh).clone()),
        }
    }

    async fn drive(
        self,
        key: String,
        record: FlawedRecord,
        parts: Parts,
        body: Bytes,
    ) -> FullResponse {
        let releases = self.flaw == HttpFlaw::DropsTheWorkOnHangUp;
        let release = ReleaseOnDrop { layer: self.clone(), key: key.clone(), armed: releases };
        let work = self.settle(key, record, parts, body);
        let answer = match releases {
            true => work.await,
            false => tokio::spawn(work).await.unwrap(),
        };
        release.disarm();
        answer
    }

    async fn settle(
        self,
        key: String,
        record: FlawedRecord,
        parts: Parts,
        body: Bytes,
    ) -> FullResponse {
        let answer = self.run(parts, body).await;
        let failed = answer.status().is_server_error() || answer.status() == 408;
        if failed && self.flaw != HttpFlaw::KeepsServerErrors {
            self.records.lock().unwrap().remove(&key);
        }
        record.recorded.send_replace(self.recorded(&answer).await);
        answer
    }

    async fn run(&self, parts: Parts, body: Bytes) -> FullResponse {
        let request = Request::from_parts(parts, Full::new(body));
        let answer = self.upstream.clone().call(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(parts, Full::new(body))
    }

    async fn recorded(&self, answer: &FullResponse) -> RecordedAnswer {
        let mut kept = HeaderMap::new();
        let cookie = (self.flaw == HttpFlaw::ReplaysCookies).then_some("set-cookie");
        for name in REPLAYED.into_iter().chain(cookie) {
            for value in answer.headers().get_all(name) {
                match self.flaw {
                    HttpFlaw::KeepsTheLastOfRepeatedHeaders => {
                        drop(kept.insert(name, value.clone()))
                    }
                    _ => drop(kept.append(name, value.clone())),
                }
            }
        }
        let body = answer.body().clone().collect().await.unwrap().to_bytes();
        let body = match self.flaw {
            HttpFlaw::ReadsBodiesAsText => String::from_utf8_lossy(&body).into_owned().into(),
            _ => body,
        };
        Some((answer.status(), kept, body))
    }

    fn mismatch(&self, key: &str) -> FullResponse {
        let answer = mismatch();
        if self.flaw == HttpFlaw::RecordsItsOwnAnswers {
            let recorded = (answer.status(), answer.headers().clone(), Bytes::new());
            self.records.lock().unwrap()[key].recorded.send_replace(Some(recorded));
        }
        answer
    }
}

/// Releases a key when its caller disconnects, which a target must not do.
struct ReleaseOnDrop {
    layer: FlawedLayer,
    key: String,
    armed: bool,
}

impl ReleaseOnDrop {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.layer.records.lock().unwrap().remove(&self.key);
        }
    }
}

fn replay(recorded: RecordedAnswer) -> FullResponse {
    let (status, headers, body) = recorded.unwrap();
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    answer.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
    answer
}

fn mismatch() -> FullResponse {
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

impl Service<Request<Incoming>> for FlawedLayer {
    type Response = FullResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<FullResponse, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.enter(request).await) })
    }
}
