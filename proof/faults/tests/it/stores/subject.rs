//! A store behind a proxy, and the same store past it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, ErrorKind, Fingerprint, KeyHash, Lease,
    Nonce, OnLostOwner, Outcome, Result, Store, Terms,
};
use semel_faults::Proxy;
use semel_servers::needed;
use semel_store_nats::NatsStore;
use semel_store_postgres::PostgresStore;
use semel_store_redis::RedisStore;
use tokio::time::sleep;

/// How long a call may take.
pub(crate) const CALL: Duration = Duration::from_millis(700);
/// What every store allows.
const LONGEST_CALL: Duration = Duration::from_secs(20);
/// Longer than anything takes that is not stuck.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(600);

type Opened = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// How to open a store: its address, the name of its own corner there, its connections, and how long a call
/// may take.
type Open = fn(String, String, usize, Duration) -> Opened;

/// What a store does about a reply that is lost with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It says that nobody knows.
    Told,
    /// It makes a claim again on another connection, and says of an outcome that nobody knows.
    ClaimsRepeated,
    /// It looks whether its call has happened, within the time the call has.
    LookedFor,
}

/// One store in a corner of its own, reached through a proxy.
pub(crate) struct Subject {
    pub(crate) proxy: Proxy,
    url: String,
    corner: String,
    open: Open,
    loss: Loss,
    call: Duration,
    /// How many runtimes have connections of their own.
    pub(crate) lanes: u64,
    /// One connection is all that each has, and all that there is for others.
    has_one: bool,
}

pub(crate) fn postgres() -> Subject {
    let subject = Subject::new("SEMEL_TEST_POSTGRES_URL", |url, corner, connections, call| {
        Box::pin(async move {
            let builder = PostgresStore::builder(url).schema(corner).connections(connections);
            Ok(Arc::new(builder.migrate(true).call_timeout(call).connect().await?) as _)
        })
    });
    Subject { lanes: 1, ..subject }
}

pub(crate) fn redis() -> Subject {
    let subject = Subject::new("SEMEL_TEST_REDIS_URL", open_redis);
    Subject { loss: Loss::ClaimsRepeated, ..subject }
}

pub(crate) fn valkey() -> Subject {
    let subject = Subject::new("SEMEL_TEST_VALKEY_URL", open_redis);
    Subject { loss: Loss::ClaimsRepeated, ..subject }
}

pub(crate) fn nats() -> Subject {
    let subject = Subject::new("SEMEL_TEST_NATS_URL", |url, corner, _, call| {
        Box::pin(async move {
            let builder = NatsStore::builder(&format!("{url}/semel-tests")).prefix(corner);
            Ok(Arc::new(builder.call_timeout(call).connect().await?) as _)
        })
    });
    Subject { loss: Loss::LookedFor, has_one: true, ..subject }
}

pub(crate) fn open_redis(
    url: String,
    corner: String,
    connections: usize,
    call: Duration,
) -> Opened {
    Box::pin(async move {
        let builder = RedisStore::builder(&url).prefix(corner).connections(connections);
        Ok(Arc::new(builder.call_timeout(call).connect().await?) as _)
    })
}

/// Runs one promise to its end, in a task as services do, or says that it is stuck.
pub(crate) fn run<P>(subject: Subject, promise: impl FnOnce(Subject) -> P)
where
    P: Future<Output = ()> + Send + 'static,
{
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let promise = promise(subject);
    let bounded = async { tokio::time::timeout(BOUND * 4, promise).await };
    runtime.block_on(async { tokio::spawn(bounded).await }).unwrap().expect("stuck");
}

impl Subject {
    fn new(variable: &str, open: Open) -> Self {
        let url = needed(variable);
        let proxy = Proxy::start(port(&url)).unwrap();
        let corner = format!("faults_{:016x}", rand::random::<u64>());
        Self { proxy, url, corner, open, loss: Loss::Told, call: CALL, lanes: 64, has_one: false }
    }

    /// Nobody gives up only because the machine is busy.
    pub(crate) fn patient(self) -> Self {
        Self { call: LONGEST_CALL, ..self }
    }

    /// A call may take so long.
    pub(crate) fn call_timeout(self, call: Duration) -> Self {
        Self { call, ..self }
    }

    /// The store through the proxy, once it has its connections on this runtime.
    pub(crate) async fn store(&self, connections: usize) -> Arc<dyn Store> {
        let store = self.open(connections).await;
        let wanted = self.without_lanes(connections) + self.in_lane(connections);
        let deadline = Instant::now() + BOUND;
        while self.proxy.counts().open() < wanted {
            assert!(Instant::now() < deadline, "no connections on this runtime");
            store.get(&claim().key).await.unwrap();
        }
        store
    }

    /// Connections of a store that nobody calls: for calls from elsewhere, for chores and for news.
    pub(crate) fn without_lanes(&self, connections: usize) -> u64 {
        if self.has_one { 1 } else { connections.div_ceil(2) as u64 + 2 }
    }

    /// Connections of a runtime that calls often.
    pub(crate) fn in_lane(&self, connections: usize) -> u64 {
        if self.has_one { 1 } else { connections as u64 }
    }

    /// The store through the proxy, as it is opened.
    pub(crate) async fn open(&self, connections: usize) -> Arc<dyn Store> {
        let (real, proxied) = (port(&self.url).to_string(), self.proxy.port().to_string());
        let url = self.url.replacen(&real, &proxied, 1);
        (self.open)(url, self.corner.clone(), connections, self.call).await.unwrap()
    }

    /// The store past the proxy: what is really there.
    pub(crate) async fn truth(&self) -> Arc<dyn Store> {
        (self.open)(self.url.clone(), self.corner.clone(), 1, self.call).await.unwrap()
    }

    /// The next request about this key reaches the server, and its reply is lost.
    pub(crate) fn lose_reply_about(&self, key: &KeyHash) {
        let bytes = key.as_bytes();
        match self.loss {
            Loss::Told | Loss::ClaimsRepeated => self.proxy.lose_reply_to(bytes),
            // In a subject it is spelled out.
            Loss::LookedFor => {
                let spelled: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.proxy.lose_reply_to(spelled);
            }
        }
    }

    /// True when the caller of a claim is always told that its reply was lost.
    pub(crate) fn tells_lost_claims(&self) -> bool {
        self.loss == Loss::Told
    }

    /// True when calls wait in a queue of their runtime.
    pub(crate) fn has_queues(&self) -> bool {
        self.loss != Loss::LookedFor
    }

    /// Asserts that nobody knows whether a claim happened, unless the store has found out.
    pub(crate) fn lost_claim(&self, answer: Result<Claim>) {
        if answer.is_err() || self.tells_lost_claims() {
            unavailable(answer);
        }
    }

    /// The same for an outcome.
    pub(crate) fn lost_outcome(&self, answer: Result<Completion>) {
        if answer.is_err() || self.loss != Loss::LookedFor {
            unavailable(answer);
        }
    }
}

/// The port in `scheme://user@host:port/rest`.
fn port(url: &str) -> u16 {
    let host = url.split('/').nth(2).unwrap();
    host.rsplit(':').next().unwrap().parse().unwrap()
}

/// A claim nobody has made before, of a key nobody has.
pub(crate) fn claim() -> ClaimRequest {
    ClaimRequest {
        key: KeyHash::from_bytes(rand::random()),
        fingerprint: Fingerprint::of_bytes(b"this"),
        nonce: Nonce::random(),
        terms: Terms {
            lease: LONG.into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: LONG.into(),
            failure_retention: LONG.into(),
        },
        labels: None,
    }
}

/// The same asked by somebody else.
pub(crate) fn rival(request: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { nonce: Nonce::random(), ..request.clone() }
}

/// What belongs to one key and no other.
pub(crate) fn outcome(key: &KeyHash) -> Arc<Outcome> {
    Arc::new(Outcome::success(format!("the outcome of {key:?}")))
}

pub(crate) fn complete(lease: &Lease) -> CompleteRequest {
    CompleteRequest { owner: lease.owner, outcome: outcome(&lease.owner.key) }
}

/// The lease in an answer, which must be that of the request.
pub(crate) fn granted(request: &ClaimRequest, claim: Claim) -> Lease {
    match claim {
        Claim::Granted(lease) => {
            assert_eq!((lease.owner.key, lease.owner.nonce), (request.key, request.nonce));
            lease
        }
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Asserts that nobody knows whether it happened.
pub(crate) fn unavailable<T: std::fmt::Debug>(answer: Result<T>) {
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Asks again until the store answers.
pub(crate) async fn until_answered<T, F>(step: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + BOUND;
    loop {
        match step().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(Instant::now() < deadline, "not back in {BOUND:?}: {error}");
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
