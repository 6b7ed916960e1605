//! The least that a layer has to do: claim the key in a map, hash and compare the body, keep and replay the answer. No
//! leases, no waiting, no bounds, no expiry, no principal, no metrics.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};

const SHARDS: usize = 64;

const MAX_BODY: usize = 1 << 20;

type NaiveShard = Mutex<HashMap<HeaderValue, NaiveRecord>>;

struct NaiveMap {
    shards: Vec<NaiveShard>,
    hasher: RandomState,
}

struct NaiveRecord {
    fingerprint: blake3::Hash,
    answer: Option<KeptAnswer>,
}

#[derive(Clone)]
struct KeptAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

pub(super) fn guarded(orders: Router) -> Router {
    let shards = (0..SHARDS).map(|_| NaiveShard::default()).collect();
    let map = Arc::new(NaiveMap { shards, hasher: RandomState::new() });
    orders.layer(from_fn_with_state(map, once))
}

async fn once(State(map): State<Arc<NaiveMap>>, request: Request, next: Next) -> Response {
    let Some(key) = request.headers().get("idempotency-key").cloned() else {
        return next.run(request).await;
    };
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if let Some(response) = map.claim(&key, blake3::hash(&body)) {
        return response;
    }
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let (head, body) = response.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let answer =
        KeptAnswer { status: head.status, headers: head.headers.clone(), body: body.clone() };
    map.complete(&key, answer);
    Response::from_parts(head, Body::from(body))
}

impl NaiveMap {
    /// The kept answer, or an error. `None` when the caller has claimed the key.
    fn claim(&self, key: &HeaderValue, fingerprint: blake3::Hash) -> Option<Response> {
        match self.shard(key).lock().expect("no code panics under this lock").entry(key.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(NaiveRecord { fingerprint, answer: None });
                None
            }
            Entry::Occupied(record) if record.get().fingerprint != fingerprint => {
                Some(StatusCode::CONFLICT.into_response())
            }
            Entry::Occupied(record) => Some(match record.get().answer.clone() {
                Some(answer) => answer.replayed(),
                None => StatusCode::CONFLICT.into_response(),
            }),
        }
    }

    fn complete(&self, key: &HeaderValue, answer: KeptAnswer) {
        let mut shard = self.shard(key).lock().expect("no code panics under this lock");
        if let Some(record) = shard.get_mut(key) {
            record.answer = Some(answer);
        }
    }

    fn shard(&self, key: &HeaderValue) -> &NaiveShard {
        let hash = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64);
        &self.shards[hash.expect("a remainder of 64 is small")]
    }
}

impl KeptAnswer {
    fn replayed(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
        response
    }
}
