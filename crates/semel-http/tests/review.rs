//! Findings of the hostile review. Each test says what a careful user expects and fails today.
#![cfg(feature = "axum")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Path,
    http::{HeaderMap, Request, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use semel_core::{
    Decision, Engine, Head, ListQuery, MemoryStore, OnLostOwner, Outcome, RecordFailures,
    ResolveRequest, Store, StoreDown,
};
use semel_http::{
    Anonymous, Authorization, Idempotency, IdempotencyLayer, IdempotencyLayerBuilder, KeyFrom,
    Mode, RoutePolicy, WithPrincipal,
};
use tower::{Layer, Service, ServiceExt};

type Builder = IdempotencyLayerBuilder<WithPrincipal>;

fn engine() -> Engine {
    Engine::builder().store(MemoryStore::new()).build().unwrap()
}

fn builder() -> Builder {
    IdempotencyLayer::builder(engine()).principal(Anonymous)
}

fn ask(uri: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(uri).header("idempotency-key", key).body(body.into()).unwrap()
}

async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn nap(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Bytes that count how many of them are alive.
struct Counted(Vec<u8>, Arc<AtomicIsize>);

impl Counted {
    fn bytes(length: usize, alive: &Arc<AtomicIsize>) -> Bytes {
        alive.fetch_add(length.cast_signed(), SeqCst);
        Bytes::from_owner(Self(vec![b'x'; length], alive.clone()))
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len().cast_signed(), SeqCst);
    }
}

// ---- one caller gets the answer to another request

/// facts/http.md §3, titen#37: axum strips the prefix of a nested router from the URI, parameters and
/// all, while `MatchedPath` stays the whole template. Neither scope nor fingerprint has the tenant.
#[tokio::test]
async fn a_parameter_in_the_prefix_of_a_nested_router_is_part_of_the_request() {
    let orders = Router::new()
        .route("/orders", post(|Path(tenant): Path<String>| async move { tenant }))
        .layer(builder().build().unwrap());
    let service = Router::new().nest("/tenants/{tenant}", orders);
    let one = service.clone().oneshot(ask("/tenants/1/orders", "a", "5 EUR")).await.unwrap();
    let two = service.oneshot(ask("/tenants/2/orders", "a", "5 EUR")).await.unwrap();
    assert_eq!(text(one).await, "1");
    // A mismatch or a run of its own: both are right. The answer for tenant 1 is not.
    assert_ne!(text(two).await, "1");
}

/// The same with a template that is the concrete path: the prefix is not part of it.
#[tokio::test]
async fn the_prefix_of_a_nested_router_is_part_of_the_concrete_path() {
    let layer = builder().route_template(semel_http::RouteTemplate::concrete_path());
    let layer = layer.build().unwrap();
    let orders = |name: &'static str| {
        Router::new().route("/orders", post(move || async move { name })).layer(layer.clone())
    };
    let service = Router::new().nest("/live", orders("live")).nest("/test", orders("test"));
    let one = service.clone().oneshot(ask("/test/orders", "a", "5 EUR")).await.unwrap();
    let two = service.oneshot(ask("/live/orders", "a", "5 EUR")).await.unwrap();
    assert_eq!(text(one).await, "test");
    assert_eq!(text(two).await, "live");
}

/// And where axum gives no template at all: one layer, two services behind one router.
#[tokio::test]
async fn the_prefix_of_a_nested_service_is_part_of_the_concrete_path() {
    let layer = builder().build().unwrap();
    let orders = |name: &'static str| {
        layer.layer(tower::service_fn(
            move |_: Request<semel_http::RequestBody<Body>>| async move {
                Ok::<_, Infallible>(name.into_response())
            },
        ))
    };
    let service =
        Router::new().nest_service("/live", orders("live")).nest_service("/test", orders("test"));
    let one = service.clone().oneshot(ask("/test/orders", "a", "5 EUR")).await.unwrap();
    let two = service.oneshot(ask("/live/orders", "a", "5 EUR")).await.unwrap();
    assert_eq!(text(one).await, "test");
    assert_eq!(text(two).await, "live");
}

/// "What is observed never answers anybody" (plan.rs): it does, in a namespace of that name.
#[tokio::test]
async fn what_was_observed_never_answers_a_neighbour() {
    let (engine, runs) = (engine(), Arc::new(AtomicU32::new(0)));
    let layer = |namespace: &str, mode| {
        IdempotencyLayer::builder(engine.clone())
            .principal(Anonymous)
            .namespace(namespace)
            .policy(RoutePolicy::api().mode(mode))
            .build()
    };
    let Ok(neighbour) = layer("pay:observed", Mode::Enforce) else { return };
    let observed = Router::new().route("/", post(|_: Bytes| async { "observed" }));
    let observed = observed.layer(layer("pay", Mode::Observe).unwrap());
    observed.oneshot(ask("/", "a", "x")).await.unwrap();
    nap(100).await;
    let counted = runs.clone();
    let handler = move || async move { counted.fetch_add(1, SeqCst).to_string() };
    let enforced = Router::new().route("/", post(handler)).layer(neighbour);
    enforced.oneshot(ask("/", "a", "x")).await.unwrap();
    assert_eq!(runs.load(SeqCst), 1, "answered from what was only observed");
}

// ---- stuck keys

/// Counts runs; the first answer goes on for ever, the next ones are short.
fn endless(runs: &Arc<AtomicU32>, silent: bool) -> Router {
    let runs = runs.clone();
    let handler = move || async move {
        if runs.fetch_add(1, SeqCst) > 0 {
            return "again".into_response();
        }
        let events = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n"))]);
        let body = if silent {
            Body::from_stream(events.chain(stream::pending()))
        } else {
            Body::from_stream(stream::repeat_with(|| {
                Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n"))
            }))
        };
        ([("content-type", "text/event-stream")], body).into_response()
    };
    let short = Duration::from_millis(100);
    let policy = RoutePolicy::api()
        .wait(Duration::ZERO)
        .with(|policy| policy.lease(short).max_run(short * 2).backoff(Duration::ZERO));
    Router::new().route("/", post(handler)).layer(builder().policy(policy).build().unwrap())
}

/// The client hangs up, the stream falls silent: `Relay::rest` looks at the lost lease only after the
/// next frame. The flight stays on the map, and this process answers 409 for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_whose_client_is_gone_gives_its_key_up_after_max_run() {
    let runs = Arc::default();
    let service = endless(&runs, true);
    drop(service.clone().oneshot(ask("/", "a", "x")).await.unwrap());
    nap(2000).await; // ten times max_run
    let answer = service.oneshot(ask("/", "a", "x")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "still {:?}", answer.headers().get("semel-status"));
}

/// The client is there but does not read: `Relay::frame` waits for room and for nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_cannot_hold_its_key_past_max_run() {
    let runs = Arc::default();
    let service = endless(&runs, false);
    let _unread = service.clone().oneshot(ask("/", "a", "x")).await.unwrap();
    nap(2000).await;
    let answer = service.oneshot(ask("/", "a", "x")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "still {:?}", answer.headers().get("semel-status"));
}

/// The client asked for something endless and hung up. Without the layer the stream is dropped. With it
/// `Relay::rest` reads on: neither a stream that is always ready nor a closed channel ever yields, so a
/// worker thread of the runtime is gone until `max_run` (10 minutes), for every such request.
#[tokio::test]
async fn a_stream_nobody_listens_to_does_not_block_its_thread() {
    let handler = || async {
        let body = Body::from_stream(stream::repeat_with(|| {
            Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n"))
        }));
        ([("content-type", "text/event-stream")], body)
    };
    let (lease, max_run) = (Duration::from_millis(500), Duration::from_millis(1500));
    let policy = RoutePolicy::api().with(|policy| policy.lease(lease).max_run(max_run));
    let layer = builder().policy(policy).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    drop(service.oneshot(ask("/", "a", "x")).await.unwrap());
    let before = std::time::Instant::now();
    nap(10).await;
    let napped = before.elapsed();
    assert!(napped < Duration::from_millis(500), "10 ms took {napped:?}");
}

/// DESIGN §3: a second run starts after the first "ran past `max_run`". Not in this process: without the
/// layer a hung handler ends when its client hangs up, with it the key is answered 409 for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_gives_its_key_up_after_max_run() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = move || async move {
        if counted.fetch_add(1, SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
    };
    let short = Duration::from_millis(100);
    let policy = RoutePolicy::api()
        .wait(Duration::ZERO)
        .with(|policy| policy.lease(short).max_run(short * 2).backoff(Duration::ZERO));
    let layer = builder().policy(policy).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    let first = service.clone().oneshot(ask("/", "a", "x"));
    assert!(tokio::time::timeout(Duration::from_millis(100), first).await.is_err());
    nap(2000).await;
    let answer = service.oneshot(ask("/", "a", "x")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "still {:?}", answer.headers().get("semel-status"));
}

// ---- lost and wrong answers

/// An inner semel answers 500 `attempt-failed`: "send the same request again". An outer hold route takes
/// it for a final answer and replays that advice for as long as it keeps failures.
#[tokio::test]
async fn an_inner_attempt_that_failed_is_not_the_final_answer_of_a_hold_route() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = move || async move {
        assert!(counted.fetch_add(1, SeqCst) > 0, "the first one fails");
        "done"
    };
    let hold = RoutePolicy::api().on_lost_owner(OnLostOwner::Hold);
    let service = Router::new()
        .route("/", post(handler))
        .layer(builder().build().unwrap())
        .layer(builder().policy(hold).build().unwrap());
    let first = service.clone().oneshot(ask("/", "a", "x")).await.unwrap();
    assert_eq!(first.headers()["stripe-should-retry"], "true");
    nap(1100).await;
    let again = service.oneshot(ask("/", "a", "x")).await.unwrap();
    let advice = text(again).await;
    assert!(!advice.contains("send the same request again"), "{advice}");
}

/// An operator resolves an Unknown key as a failure, as docs/problems/outcome-unknown.md says.
async fn resolved(outcome: Outcome) -> Response {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::builder().store(store.clone()).build().unwrap();
    let hold = RoutePolicy::api().on_lost_owner(OnLostOwner::Hold);
    let layer = IdempotencyLayer::builder(engine.clone()).principal(Anonymous).policy(hold);
    let handler = || async {
        if true {
            panic!("lost")
        }
    };
    let service = Router::new().route("/", post(handler)).layer(layer.build().unwrap());
    let first = service.clone().oneshot(ask("/", "a", "x")).await.unwrap();
    assert_eq!(first.headers()["semel-status"], "outcome-unknown");
    let record = store.list(&ListQuery::default()).await.unwrap().remove(0);
    let decision = Decision::Complete(Arc::new(outcome));
    let request = ResolveRequest {
        key: record.key,
        seen_nonce: record.nonce,
        seen_token: record.token,
        decision,
    };
    engine.resolve(&request, "looked it up").await.unwrap();
    service.oneshot(ask("/", "a", "x")).await.unwrap()
}

#[tokio::test]
async fn a_failure_that_an_operator_recorded_is_not_answered_with_200() {
    let answer = resolved(Outcome::failure("card_declined", "the bank says no")).await;
    assert!(!answer.status().is_success(), "{}", answer.status());
}

#[tokio::test]
async fn the_content_type_of_an_outcome_is_shown() {
    let head = Head { content_type: Some("application/json".into()), ..Head::default() };
    let answer = resolved(Outcome::success("{}").with_head(head)).await;
    assert!(answer.headers().contains_key("content-type"));
}

/// DESIGN §6: "Trailers are recorded." In gRPC they are the answer.
#[tokio::test]
async fn the_trailers_of_a_stream_are_recorded() {
    let handler = || async {
        let trailers = HeaderMap::from_iter([(
            "grpc-status".parse().unwrap(),
            "5".parse::<axum::http::HeaderValue>().unwrap(),
        )]);
        let frames = [
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = Body::new(StreamBody::new(stream::iter(frames)));
        ([("content-type", "application/grpc")], body)
    };
    let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
    let first = service.clone().oneshot(ask("/", "a", "x")).await.unwrap();
    let first = first.into_body().collect().await.unwrap();
    assert_eq!(first.trailers().unwrap()["grpc-status"], "5");
    let replay = service.oneshot(ask("/", "a", "x")).await.unwrap();
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    let replay = replay.into_body().collect().await.unwrap();
    assert!(replay.trailers().is_some_and(|trailers| trailers["grpc-status"] == "5"));
}

/// The budget is spent for a moment; a small answer of somebody else is lost for 24 hours.
#[tokio::test(flavor = "multi_thread")]
async fn a_moment_without_room_does_not_lose_a_small_answer_for_good() {
    let layer = builder()
        .policy(RoutePolicy::api().max_request_bytes(1000).max_response_bytes(1000))
        .buffer_bytes(6000)
        .build()
        .unwrap();
    let hang = post(|body: Request<Body>| async move {
        nap(600).await;
        drop(body);
    });
    let service =
        Router::new().route("/hang", hang).route("/", post(|| async { "receipt 7" })).layer(layer);
    let hanging = tokio::spawn(service.clone().oneshot(ask("/hang", "h", vec![b'x'; 1000])));
    nap(100).await;
    let first = service.clone().oneshot(ask("/", "a", "")).await.unwrap();
    if first.status() == StatusCode::OK {
        assert_eq!(text(first).await, "receipt 7");
    }
    hanging.await.unwrap().unwrap();
    let retry = service.oneshot(ask("/", "a", "")).await.unwrap();
    assert_eq!(text(retry).await, "receipt 7");
}

// ---- those who waited

/// The answers of a first caller and of one who waited for it.
async fn both(service: Router) -> (Response, Response) {
    let first = tokio::spawn(service.clone().oneshot(ask("/", "a", "x")));
    nap(100).await;
    let second = service.oneshot(ask("/", "a", "x")).await.unwrap();
    (first.await.unwrap().unwrap(), second)
}

fn slow(answer: impl IntoResponse + Clone + Send + Sync + 'static, policy: RoutePolicy) -> Router {
    let handler = move || async move {
        nap(400).await;
        answer
    };
    Router::new().route("/", post(handler)).layer(builder().policy(policy).build().unwrap())
}

/// Without it a semel further out records somebody's 409 `in-progress` as the outcome.
#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_an_inner_semels_answer_is_told_that_it_is_one() {
    let busy = (
        StatusCode::CONFLICT,
        [("semel-status", "in-progress"), ("stripe-should-retry", "true"), ("retry-after", "3")],
        "busy",
    );
    let (first, second) = both(slow(busy, RoutePolicy::api())).await;
    assert_eq!(first.headers()["semel-status"], "in-progress");
    assert_eq!(second.status(), StatusCode::CONFLICT);
    assert!(second.headers().contains_key("semel-status"), "{:?}", second.headers());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_429_is_told_when_to_come_back() {
    let limited = (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "30")], "later");
    let (first, second) = both(slow(limited, RoutePolicy::api())).await;
    assert_eq!(first.headers()["retry-after"], "30");
    assert!(second.headers().contains_key("retry-after"), "{:?}", second.headers());
}

/// API.md: "Duplicates that wait on a run that ends in retry get the owner's answer".
#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_a_failure_that_is_not_recorded_gets_it_too() {
    let policy = RoutePolicy::api().with(|policy| policy.record_failures(RecordFailures::Never));
    let declined = (StatusCode::UNPROCESSABLE_ENTITY, "declined");
    let (first, second) = both(slow(declined, policy)).await;
    assert_eq!(first.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(second.status(), StatusCode::UNPROCESSABLE_ENTITY, "{:?}", second.headers());
}

/// DESIGN §3: the caller is answered truthfully.
#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_an_answer_that_is_not_stored_is_told_so() {
    let store = MemoryStore::builder().max_entries(1).build().unwrap();
    let engine = Engine::builder().store(store).build().unwrap();
    let policy = RoutePolicy::api().store_down(StoreDown::RunUnprotected);
    let layer = IdempotencyLayer::builder(engine).principal(Anonymous).policy(policy);
    let handler = || async { nap(400).await };
    let service = Router::new().route("/", post(handler)).layer(layer.build().unwrap());
    service.clone().oneshot(ask("/", "filler", "x")).await.unwrap();
    let (first, second) = both(service).await;
    assert_eq!(first.headers()["idempotency-stored"], "false");
    assert!(second.headers().contains_key("idempotency-stored"), "{:?}", second.headers());
}

/// An inner service with `places` for concurrent calls, taken in `poll_ready` as tower's own limit does.
struct Limited {
    places: Arc<tokio::sync::Semaphore>,
    place: Option<tokio::sync::OwnedSemaphorePermit>,
    waiting: Option<Pin<Box<dyn Future<Output = tokio::sync::OwnedSemaphorePermit> + Send>>>,
}

impl Clone for Limited {
    fn clone(&self) -> Self {
        Self { places: self.places.clone(), place: None, waiting: None }
    }
}

impl<B: Send + 'static> Service<Request<B>> for Limited {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.place.is_none() {
            let places = self.places.clone();
            let waiting = self.waiting.get_or_insert_with(|| {
                Box::pin(async move { places.acquire_owned().await.unwrap() })
            });
            self.place = Some(std::task::ready!(waiting.as_mut().poll(cx)));
            self.waiting = None;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let place = self.place.take().expect("not ready");
        Box::pin(async move {
            let _place = place;
            if request.uri().path() == "/slow" {
                nap(3000).await;
            }
            Ok("done".into_response())
        })
    }
}

/// One runs, one waits for it: of two places one is free, but the waiter sits on it.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_waits_takes_no_place_of_the_inner_service() {
    let places = Arc::new(tokio::sync::Semaphore::new(2));
    let service = builder().build().unwrap().layer(Limited { places, place: None, waiting: None });
    for _ in 0..2 {
        tokio::spawn(service.clone().oneshot(ask("/slow", "a", "x")));
        nap(100).await;
    }
    let other = service.oneshot(ask("/", "other", "x"));
    assert!(tokio::time::timeout(Duration::from_secs(1), other).await.is_ok());
}

/// Somebody sends a body drop by drop: nothing runs, but a place of the inner service is taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_takes_no_place_of_the_inner_service() {
    let places = Arc::new(tokio::sync::Semaphore::new(1));
    let service = builder().build().unwrap().layer(Limited { places, place: None, waiting: None });
    let drops = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    tokio::spawn(service.clone().oneshot(ask("/", "slow", drops)));
    nap(100).await;
    let other = service.oneshot(ask("/", "other", "x"));
    assert!(tokio::time::timeout(Duration::from_secs(1), other).await.is_ok());
}

/// A recorded answer needs nobody's place, but waits until the inner service has one.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_takes_no_place_of_the_inner_service() {
    let places = Arc::new(tokio::sync::Semaphore::new(1));
    let service = builder().build().unwrap().layer(Limited { places, place: None, waiting: None });
    service.clone().oneshot(ask("/", "done", "x")).await.unwrap();
    tokio::spawn(service.clone().oneshot(ask("/slow", "a", "x")));
    nap(100).await;
    let replay = service.oneshot(ask("/", "done", "x"));
    assert!(tokio::time::timeout(Duration::from_secs(1), replay).await.is_ok());
}

// ---- memory

/// Large bodies are not copied for the record, small ones are: the wrong way round. A slice keeps the
/// buffer it is cut from alive for the whole retention, and the store counts the slice.
#[tokio::test]
async fn a_record_keeps_no_more_alive_than_it_is_charged_for() {
    let alive: Arc<AtomicIsize> = Arc::default();
    let made = alive.clone();
    let handler = move || async move { Counted::bytes(16 << 20, &made).slice(..100_000) };
    let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
    drop(service.clone().oneshot(ask("/", "a", "x")).await.unwrap());
    let held = alive.load(SeqCst);
    assert!(held < 1 << 20, "a record of 100000 bytes keeps {held} alive");
}

/// Answers over the limit: what was read before that was known is held while the permit is given back.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_of_answers_over_the_limit_stays_within_the_budget() {
    const BUDGET: usize = (1 << 20) + 4096;
    let alive: Arc<AtomicIsize> = Arc::default();
    let made = alive.clone();
    let handler = move || async move {
        let chunks = (0..17).map(move |_| Ok::<_, Infallible>(Counted::bytes(1 << 16, &made)));
        Body::from_stream(stream::iter(chunks))
    };
    let layer = builder().buffer_bytes(BUDGET).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    let mut unread = Vec::new();
    for key in 0..20 {
        unread.push(service.clone().oneshot(ask("/", &format!("k{key}"), "")).await.unwrap());
    }
    let held = alive.load(SeqCst);
    assert!(held <= 4 * BUDGET.cast_signed(), "{held} bytes held, {BUDGET} allowed");
}

/// `RequestBody` gives its permit back when the handler has taken the bytes, which are still held.
#[tokio::test(flavor = "multi_thread")]
async fn request_bodies_in_the_hands_of_handlers_stay_within_the_budget() {
    const LARGE: usize = 1 << 20;
    let held: Arc<AtomicUsize> = Arc::default();
    let counted = held.clone();
    let handler = move |body: Bytes| async move {
        counted.fetch_add(body.len(), SeqCst);
        nap(5000).await;
        drop(body);
    };
    let layer = builder().policy(RoutePolicy::api()).buffer_bytes(2 * LARGE).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    for key in 0..8 {
        tokio::spawn(service.clone().oneshot(ask("/", &format!("k{key}"), vec![b'x'; LARGE])));
    }
    nap(500).await;
    let held = held.load(SeqCst);
    assert!(held <= 2 * LARGE, "{held} bytes held, {} allowed", 2 * LARGE);
}

/// A body of one-byte chunks: every piece costs its bookkeeping (32 bytes and an allocation), and the
/// permit counts one byte. Empty pieces are not counted at all.
#[tokio::test]
async fn a_body_in_tiny_pieces_takes_no_more_room_than_it_is_charged_for() {
    let (alive, most) = (Arc::new(AtomicIsize::new(0)), Arc::new(AtomicIsize::new(0)));
    let pieces = {
        let most = most.clone();
        (0..200_000).map(move |_| {
            let piece = Counted::bytes(1, &alive);
            most.fetch_max(alive.load(SeqCst), SeqCst);
            Ok::<_, Infallible>(piece)
        })
    };
    let service = Router::new().route("/", post(|| async {})).layer(builder().build().unwrap());
    let body = Body::from_stream(stream::iter(pieces));
    let answer = service.oneshot(ask("/", "a", body)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let most = most.load(SeqCst);
    assert!(most < 20_000, "{most} pieces of one byte were held at the same time");
}

/// Frames without a byte have no bound but the time to read: HTTP/2 lets a client send them.
#[tokio::test]
async fn empty_pieces_are_not_collected() {
    let before = resident();
    let grown = Arc::new(AtomicUsize::new(0));
    let most = grown.clone();
    let empty = stream::iter(0..2_000_000_u32).then(move |at| {
        let most = most.clone();
        async move {
            if at % 100_000 == 0 {
                most.fetch_max(resident().saturating_sub(before), SeqCst);
            }
            Ok::<_, Infallible>(Bytes::new())
        }
    });
    let service = Router::new().route("/", post(|| async {})).layer(builder().build().unwrap());
    let _ = service.oneshot(ask("/", "a", Body::from_stream(empty))).await.unwrap();
    let grown = grown.load(SeqCst);
    assert!(grown < 16 << 20, "nothing was sent, and it took {grown} bytes");
}

/// What this process has in memory. Other tests count too: run this one alone.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

// ---- observe

/// What is counted in observe mode for these requests to a handler that answers so.
async fn observed(
    bodies: &[&'static str],
    answer: impl IntoResponse + Clone + Send + Sync + 'static,
) -> Vec<(String, u64)> {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let layer = builder().policy(RoutePolicy::api().mode(Mode::Observe)).build().unwrap();
    let service =
        Router::new().route("/", post(move |_: Bytes| async move { answer })).layer(layer);
    for body in bodies {
        service.clone().oneshot(ask("/", "a", *body)).await.unwrap();
        nap(100).await;
    }
    let mut counts = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        if key.name() == "idempotency_http_observed_total"
            && let metrics_util::debugging::DebugValue::Counter(count) = value
        {
            counts.push((key.labels().next().unwrap().value().to_owned(), count));
        }
    }
    counts.sort();
    counts
}

/// Enforcing does not record an inner semel's answer: the second request would run too.
#[tokio::test]
async fn observing_honours_semel_status() {
    let busy = (StatusCode::CONFLICT, [("semel-status", "in-progress")], "busy");
    assert_eq!(observed(&["x", "x"], busy).await, [("first".to_owned(), 2)]);
}

/// Enforcing keeps the fingerprint of a failed attempt (T8): another payload is a mismatch.
#[tokio::test]
async fn observing_counts_a_mismatch_after_a_failed_attempt() {
    let counts = observed(&["x", "y"], (StatusCode::BAD_GATEWAY, "down")).await;
    assert_eq!(counts, [("fingerprint-mismatch".to_owned(), 1), ("first".to_owned(), 1)]);
}

/// "Never interferes": copies for observing use up the room of routes that are enforced.
#[tokio::test(flavor = "multi_thread")]
async fn observing_one_route_turns_nobody_away_on_another() {
    const LARGE: usize = 700_000;
    let layer = builder()
        .route("POST /observed", RoutePolicy::api().mode(Mode::Observe))
        .buffer_bytes((1 << 20) + 4096)
        .build()
        .unwrap();
    let hang = post(|body: Bytes| async move {
        drop(body);
        nap(3000).await;
    });
    let service = Router::new()
        .route("/observed", hang)
        .route("/enforced", post(|_: Bytes| async {}))
        .layer(layer);
    tokio::spawn(service.clone().oneshot(ask("/observed", "a", vec![b'x'; LARGE])));
    nap(200).await;
    let answer = service.oneshot(ask("/enforced", "b", vec![b'x'; LARGE])).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{:?}", answer.headers().get("semel-status"));
}

/// The extractor answers 400 `key-missing` to a client that did send a key, once the route is switched
/// to observe or off.
#[tokio::test]
async fn a_handler_with_the_extractor_survives_observe_and_off() {
    for mode in [Mode::Observe, Mode::Off] {
        let layer = builder().policy(RoutePolicy::api().mode(mode)).build().unwrap();
        let service = Router::new().route("/", post(|_: Idempotency| async {})).layer(layer);
        let answer = service.oneshot(ask("/", "a", "x")).await.unwrap();
        assert!(
            answer.headers().get("semel-status").is_none_or(|status| status != "key-missing"),
            "{mode:?}: a key was sent"
        );
    }
}

// ---- bad input that is silently accepted

#[test]
fn a_bad_pointer_to_the_key_is_refused_at_build() {
    let policy = RoutePolicy::api().key_from(KeyFrom::json_pointer("request_id"));
    assert!(builder().policy(policy).build().is_err(), "no request would ever have a key");
}

/// Answers that the policy promises to keep never fit: each is recorded without its body, silently.
#[test]
fn a_budget_below_the_largest_answer_is_refused_at_build() {
    let policy = RoutePolicy::api().max_response_bytes(16 << 20);
    assert!(builder().policy(policy).buffer_bytes(1 << 20).build().is_err());
}

#[tokio::test]
async fn an_id_that_is_there_but_unusable_is_not_taken_for_none() {
    let policy = RoutePolicy::api().key_from(KeyFrom::json_pointer("/request_id"));
    let layer = builder().policy(policy).build().unwrap();
    let service = Router::new().route("/", post(|| async {})).layer(layer);
    for body in [r#"{"request_id":""}"#, r#"{"request_id":1.5}"#, r#"{"request_id":["a"]}"#] {
        let request = Request::post("/").body(Body::from(body)).unwrap();
        let answer = service.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{body} ran unprotected");
    }
}

#[tokio::test]
async fn a_principal_that_is_too_long_is_not_called_a_bad_key() {
    let layer = IdempotencyLayer::builder(engine()).principal(Authorization).build().unwrap();
    let service = Router::new().route("/", post(|| async {})).layer(layer);
    let mut request = ask("/", "a", "x");
    request.headers_mut().insert("authorization", "t".repeat(9000).parse().unwrap());
    let answer = service.oneshot(request).await.unwrap();
    assert_ne!(answer.headers()["semel-status"], "key-invalid");
}

/// Our own answers are never 2xx: such a header is the handler's (or one it passed on), the effect is
/// there, and the retry runs it again.
#[tokio::test]
async fn semel_status_on_a_success_does_not_free_the_key() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = move || async move {
        counted.fetch_add(1, SeqCst);
        ([("semel-status", "in-progress")], "charged")
    };
    let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
    for _ in 0..2 {
        service.clone().oneshot(ask("/", "a", "x")).await.unwrap();
    }
    assert_eq!(runs.load(SeqCst), 1);
}

/// DESIGN §6: "Reply headers are CORS-exposed." A script cannot read `Retry-After` otherwise.
#[test]
fn scripts_may_read_retry_after() {
    assert!(semel_http::header::EXPOSED.contains("Retry-After"));
}

/// `problem_base` says where `type` points, except in the answer of the extractor.
#[tokio::test]
async fn the_extractors_answer_has_the_configured_type() {
    let layer = builder().problem_base("https://example.org/problems/").build().unwrap();
    let service = Router::new().route("/", post(|_: Idempotency| async {})).layer(layer);
    let request = Request::post("/").body(Body::empty()).unwrap();
    let answer = text(service.oneshot(request).await.unwrap()).await;
    assert!(answer.contains("https://example.org/problems/key-missing"), "{answer}");
}
