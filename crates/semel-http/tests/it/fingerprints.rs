//! When two requests are the same, what a 409 says about two that differ, and how records of earlier versions of
//! semel are replayed.

use axum::{
    Router,
    body::Body,
    http::{HeaderName, Request, header::HOST},
};
use semel_core::{
    Engine, Error, ErrorKind, Fingerprint, Key, LabelPolicy, MemoryStore, Outcome, Principal,
    Scope, Store, StoreInfo, Verdict,
};
use semel_http::{Anonymous, IdempotencyLayer, RoutePolicy, RouteTemplate};

use crate::harness::{
    RunCounter, answer, builder, charge, counting, engine, keyed_post, problem, text,
};

/// The request of [`charge`] with one more header.
fn charge_with(key: &str, name: &str, value: &str) -> Request<Body> {
    let mut request = charge(key);
    request.headers_mut().append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    request
}

fn service(runs: &RunCounter, engine: &Engine) -> Router {
    let layer = IdempotencyLayer::builder(engine.clone()).principal(Anonymous).build().unwrap();
    counting(runs).layer(layer)
}

#[tokio::test]
async fn headers_that_change_the_meaning_of_a_request_are_compared() {
    for (name, part) in [
        ("content-encoding", "content encoding"),
        ("x-http-method-override", "method"),
        ("x-http-method", "method"),
        ("x-method-override", "method"),
    ] {
        let runs = RunCounter::default();
        let service = service(&runs, &engine());
        for (key, first, second) in [
            ("a", charge("a"), charge_with("a", name, "gzip")),
            ("b", charge_with("b", name, "gzip"), charge("b")),
            ("c", charge_with("c", name, "gzip"), charge_with("c", name, "br")),
        ] {
            let ran = runs.total();
            answer(&service, first).await;
            let refused = answer(&service, second).await;
            assert_eq!(problem(&refused), Some("fingerprint-mismatch"), "{name} {key}");
            let body = text(refused).await;
            assert!(body.contains(&format!("differs in: {part};")), "{name} {key}: {body}");
            assert_eq!(runs.total(), ran + 1, "{name} {key}");
        }
        let again = answer(&service, charge_with("c", name, "gzip")).await;
        assert_eq!(again.headers()["idempotent-replayed"], "true", "{name}");
    }
}

#[tokio::test]
async fn paths_with_one_normal_form_are_the_same_request() {
    let runs = RunCounter::default();
    for template in [RouteTemplate::matched_path(), RouteTemplate::concrete_path()] {
        let layer = builder().route_template(template).build().unwrap();
        let service = counting(&runs).layer(layer);
        let first = text(answer(&service, keyed_post("/orders/abc", "a", "5 EUR")).await).await;
        for uri in ["/orders/%61bc", "/orders/a%62c", "/orders/%61%62%63"] {
            let again = answer(&service, keyed_post(uri, "a", "5 EUR")).await;
            assert_eq!(text(again).await, first, "{uri}");
        }
        let other = text(answer(&service, keyed_post("/orders/a%2Fbc", "b", "5 EUR")).await).await;
        let again = text(answer(&service, keyed_post("/orders/a%2fbc", "b", "5 EUR")).await).await;
        assert_eq!(other, again);
    }
    assert_eq!(runs.total(), 4);
}

#[tokio::test]
async fn a_mismatch_names_the_part_that_differs_and_never_its_value() {
    let layer = builder()
        .policy(
            RoutePolicy::api()
                .compare_header(HOST)
                .compare_header(HeaderName::from_static("x-tenant")),
        )
        .build()
        .unwrap();
    let service = counting(&RunCounter::default()).layer(layer);
    let send = |uri: &str, header: (&str, &str), body: &'static str| {
        let mut request = keyed_post(uri, "a", body);
        let headers = request.headers_mut();
        headers.insert(HOST, "shop.example".parse().unwrap());
        headers.insert("content-type", "text/plain".parse().unwrap());
        headers.insert(header.0.parse::<HeaderName>().unwrap(), header.1.parse().unwrap());
        answer(&service, request)
    };
    let tenant = ("x-tenant", "canary-1");
    send("/orders/7?x=1", tenant, "5 EUR").await;
    for (named, uri, header, body) in [
        ("differs in: path;", "/orders/canary?x=1", tenant, "5 EUR"),
        ("differs in: query;", "/orders/7?x=canary", tenant, "5 EUR"),
        ("differs in: host, headers;", "/orders/7?x=1", ("host", "canary.example"), "5 EUR"),
        ("differs in: headers;", "/orders/7?x=1", ("x-tenant", "canary-2"), "5 EUR"),
        ("differs in: body;", "/orders/7?x=1", tenant, "canary"),
        ("differs in: path, query;", "/orders/8?x=canary", tenant, "canary"),
    ] {
        let refused = send(uri, header, body).await;
        assert_eq!(problem(&refused), Some("fingerprint-mismatch"), "{named}");
        let response = text(refused).await;
        assert!(response.contains(named), "{named}: {response}");
        assert!(!response.contains("canary"), "{named}: {response}");
    }
    let mut typed = keyed_post("/orders/7?x=1", "a", "5 EUR");
    typed.headers_mut().insert(HOST, "shop.example".parse().unwrap());
    typed.headers_mut().insert("x-tenant", "canary-1".parse().unwrap());
    let response = text(answer(&service, typed).await).await;
    assert!(response.contains("differs in: content type;"), "{response}");
    let response: serde_json::Value = serde_json::from_str(&response).unwrap();
    assert_eq!(response["differs"], serde_json::json!(["content type"]));
}

/// If the fingerprint differs and no digest does, the answer names the body.
#[tokio::test]
async fn a_mismatch_never_names_a_body_that_is_the_same() {
    let [one, two] = ["x-one", "x-two"].map(HeaderName::from_static);
    let policy = RoutePolicy::api().compare_header(one).compare_header(two);
    let service = counting(&RunCounter::default()).layer(builder().policy(policy).build().unwrap());
    answer(&service, charge_with("a", "x-one", "1")).await;
    let response = text(answer(&service, charge_with("a", "x-two", "1")).await).await;
    assert!(response.contains("differs in: headers;"), "{response}");
    answer(&service, keyed_post("/orders/7", "b", "5 EUR")).await;
    let response = text(answer(&service, keyed_post("/orders/7?", "b", "5 EUR")).await).await;
    assert!(response.contains("differs in: query;"), "{response}");
}

#[tokio::test]
async fn the_policy_of_a_route_applies_to_every_spelling_of_its_path() {
    for route in ["POST /orders/caf%c3%a9", "POST /orders/caf%C3%A9"] {
        let layer = builder()
            .route_template(RouteTemplate::concrete_path())
            .route(route, RoutePolicy::api().require_key())
            .build()
            .unwrap();
        let service = counting(&RunCounter::default()).layer(layer);
        for path in ["/orders/caf%c3%a9", "/orders/caf%C3%A9", "/orders/%63af%C3%a9"] {
            let request = Request::post(path).body(Body::empty()).unwrap();
            let refused = answer(&service, request).await;
            assert_eq!(problem(&refused), Some("key-missing"), "{route} {path}");
        }
    }
}

#[tokio::test]
async fn a_mismatch_with_redacted_labels_does_not_name_the_part() {
    let store = MemoryStore::new();
    let engine = Engine::builder().store(store).labels(LabelPolicy::Redact).build().unwrap();
    let service = service(&RunCounter::default(), &engine);
    answer(&service, charge("a")).await;
    let refused = answer(&service, keyed_post("/orders/7", "a", "6 EUR")).await;
    assert_eq!(problem(&refused), Some("fingerprint-mismatch"));
    assert!(!text(refused).await.contains("differ"));
}

/// What an earlier version claims and records: its fingerprint is a hash of these six parts, for every request.
async fn earlier_version(engine: &Engine, operation: &str, target: &str, id: &str) -> String {
    let parts: [&[u8]; 6] = [b"http", b"POST", target.as_bytes(), b"", b"raw", b"5 EUR"];
    let key: Key = Scope::new("default", Principal::Anonymous, operation).key(id).unwrap();
    let work = async |_| Verdict::Final(Outcome::success("by an earlier version"));
    let answer = engine.run_raw(key, Fingerprint::of_parts(&parts), work).await.unwrap();
    let body = answer.value.body().clone();
    let semel_core::Body::Kept(bytes) = body else { panic!("the body was not kept") };
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn nodes_of_an_earlier_build_and_new_ones_replay_each_others_records() {
    let (runs, engine) = (RunCounter::default(), engine());
    let service = service(&runs, &engine);
    let (operation, target) = ("POST /orders/{id}", "/orders/7?x=%61");
    assert_eq!(text(answer(&service, keyed_post(target, "a", "5 EUR")).await).await, "run 1");
    assert_eq!(earlier_version(&engine, operation, target, "a").await, "run 1");
    assert_eq!(earlier_version(&engine, operation, target, "b").await, "by an earlier version");
    let replayed = answer(&service, keyed_post(target, "b", "5 EUR")).await;
    assert_eq!(text(replayed).await, "by an earlier version");
    assert_eq!(runs.total(), 1);
}

#[tokio::test]
async fn a_record_of_an_earlier_build_replays_for_requests_that_it_hashed_otherwise() {
    for labels in [LabelPolicy::Keep, LabelPolicy::Redact] {
        let (runs, store) = (RunCounter::default(), MemoryStore::new());
        let engine = Engine::builder().store(store).labels(labels).build().unwrap();
        let service = service(&runs, &engine);
        earlier_version(&engine, "POST /orders/{id}", "/orders/%37", "a").await;
        for _ in 0..2 {
            let replayed = answer(&service, keyed_post("/orders/%37", "a", "5 EUR")).await;
            assert_eq!(text(replayed).await, "by an earlier version", "{labels:?}");
        }
        let by_path = IdempotencyLayer::builder(engine.clone()).principal(Anonymous);
        let by_path = by_path.route_template(RouteTemplate::concrete_path()).build().unwrap();
        let by_path = counting(&runs).layer(by_path);
        earlier_version(&engine, "POST /orders/%37", "/orders/%37", "b").await;
        let replayed = answer(&by_path, keyed_post("/orders/%37", "b", "5 EUR")).await;
        assert_eq!(text(replayed).await, "by an earlier version", "{labels:?}");
        // The other spelling of what an earlier version recorded.
        earlier_version(&engine, "POST /orders/{id}", "/orders/8", "e").await;
        let replayed = answer(&service, keyed_post("/orders/%38", "e", "5 EUR")).await;
        assert_eq!(text(replayed).await, "by an earlier version", "{labels:?}");
        assert_eq!(runs.total(), 0, "{labels:?}");
    }
    let (runs, engine) = (RunCounter::default(), engine());
    let service = service(&runs, &engine);
    for (id, name) in [("c", "content-encoding"), ("d", "x-http-method-override")] {
        earlier_version(&engine, "POST /orders/{id}", "/orders/7", id).await;
        let replayed = answer(&service, charge_with(id, name, "gzip")).await;
        assert_eq!(text(replayed).await, "by an earlier version", "{name}");
    }
    assert_eq!(runs.total(), 0);
}

/// A store whose reads fail and whose claims work.
#[derive(Debug)]
struct UnreadableStore(MemoryStore);

macro_rules! unreadable_store {
    (@ get $self:ident $request:ident) => {{
        let _ = $request;
        Err(Error::new(ErrorKind::Unavailable, "the reply was lost"))
    }};
    (@ $name:ident $self:ident $request:ident) => { $self.0.$name($request).await };
    ($($name:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait::async_trait]
        impl Store for UnreadableStore {
            fn info(&self) -> StoreInfo {
                self.0.info()
            }
            $(async fn $name(&self, request: $request) -> $answer {
                unreadable_store!(@ $name self request)
            })*
            async fn stats(&self) -> semel_core::Result<semel_core::Stats> {
                self.0.stats().await
            }
        }
    };
}

semel_core::__store_steps!(unreadable_store);

/// A claim of the new key would be granted, since the record has the earlier key.
#[tokio::test]
async fn a_record_of_an_earlier_build_is_not_run_again_if_it_cannot_be_looked_for() {
    let runs = RunCounter::default();
    let engine = Engine::builder().store(UnreadableStore(MemoryStore::new())).build().unwrap();
    earlier_version(&engine, "POST /orders/%37", "/orders/%37", "a").await;
    let layer = IdempotencyLayer::builder(engine).principal(Anonymous);
    let layer = layer.route_template(RouteTemplate::concrete_path()).build().unwrap();
    let replayed =
        answer(&counting(&runs).layer(layer), keyed_post("/orders/%37", "a", "5 EUR")).await;
    assert_eq!(text(replayed).await, "by an earlier version");
    assert_eq!(runs.total(), 0);
}
