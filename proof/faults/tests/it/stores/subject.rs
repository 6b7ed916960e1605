//! A store behind a proxy, and the same store without the proxy.

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
use semel_faults::FaultProxy;
use semel_servers::needed;
use semel_store_nats::NatsStore;
use semel_store_postgres::PostgresStore;
use semel_store_redis::RedisStore;
use tokio::time::sleep;

/// The call timeout.
pub(crate) const CALL: Duration = Duration::from_millis(700);
/// The longest call timeout that every store allows.
const LONGEST_CALL: Duration = Duration::from_secs(20);
/// Longer than any step takes that is not stuck.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(600);

type OpenFuture = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// Opens a store: URL, prefix, number of connections, call timeout.
type OpenStore = fn(String, String, usize, Duration) -> OpenFuture;

/// What a store does when a reply is lost with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostReply {
    /// It returns Unavailable.
    Reported,
    /// It sends a claim again on another connection, and returns Unavailable for an outcome.
    ClaimsRepeated,
    /// It reads whether its call took effect, within the call timeout.
    Verified,
}

/// One store with a prefix of its own, reached through a proxy.
pub(crate) struct StoreUnderTest {
    pub(crate) proxy: FaultProxy,
    url: String,
    prefix: String,
    open: OpenStore,
    loss: LostReply,
    call: Duration,
    /// How many runtimes get connections of their own.
    pub(crate) runtimes_with_connections: u64,
    /// Each runtime has a single connection, and so have all others together.
    has_single_connection: bool,
}

pub(crate) fn postgres() -> StoreUnderTest {
    let subject =
        StoreUnderTest::new("SEMEL_TEST_POSTGRES_URL", |url, prefix, connections, call| {
            Box::pin(async move {
                let builder = PostgresStore::builder(url).schema(prefix).connections(connections);
                Ok(Arc::new(builder.migrate(true).call_timeout(call).connect().await?) as _)
            })
        });
    StoreUnderTest { runtimes_with_connections: 1, ..subject }
}

pub(crate) fn redis() -> StoreUnderTest {
    let subject = StoreUnderTest::new("SEMEL_TEST_REDIS_URL", open_redis);
    StoreUnderTest { loss: LostReply::ClaimsRepeated, ..subject }
}

pub(crate) fn valkey() -> StoreUnderTest {
    let subject = StoreUnderTest::new("SEMEL_TEST_VALKEY_URL", open_redis);
    StoreUnderTest { loss: LostReply::ClaimsRepeated, ..subject }
}

pub(crate) fn nats() -> StoreUnderTest {
    let subject = StoreUnderTest::new("SEMEL_TEST_NATS_URL", |url, prefix, _, call| {
        Box::pin(async move {
            let builder = NatsStore::builder(&format!("{url}/semel-tests")).prefix(prefix);
            Ok(Arc::new(builder.call_timeout(call).connect().await?) as _)
        })
    });
    StoreUnderTest { loss: LostReply::Verified, has_single_connection: true, ..subject }
}

pub(crate) fn open_redis(
    url: String,
    prefix: String,
    connections: usize,
    call: Duration,
) -> OpenFuture {
    Box::pin(async move {
        let builder = RedisStore::builder(&url).prefix(prefix).connections(connections);
        Ok(Arc::new(builder.call_timeout(call).connect().await?) as _)
    })
}

/// Runs one promise in a task, as services do, and fails when it is stuck.
pub(crate) fn run<P>(subject: StoreUnderTest, promise: impl FnOnce(StoreUnderTest) -> P)
where
    P: Future<Output = ()> + Send + 'static,
{
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let promise = promise(subject);
    let bounded = async { tokio::time::timeout(BOUND * 4, promise).await };
    runtime.block_on(async { tokio::spawn(bounded).await }).unwrap().expect("the promise is stuck");
}

impl StoreUnderTest {
    fn new(variable: &str, open: OpenStore) -> Self {
        let url = needed(variable);
        let proxy = FaultProxy::start(port(&url)).unwrap();
        let prefix = format!("faults_{:016x}", rand::random::<u64>());
        Self {
            proxy,
            url,
            prefix,
            open,
            loss: LostReply::Reported,
            call: CALL,
            runtimes_with_connections: 64,
            has_single_connection: false,
        }
    }

    /// Sets a long call timeout, so that no call fails only because the machine is busy.
    pub(crate) fn patient(self) -> Self {
        Self { call: LONGEST_CALL, ..self }
    }

    /// The same store as another process has it, through a proxy of its own.
    pub(crate) fn of_another_process(&self) -> Self {
        let (url, prefix) = (self.url.clone(), self.prefix.clone());
        Self { proxy: FaultProxy::start(port(&self.url)).unwrap(), url, prefix, ..*self }
    }

    /// Sets the call timeout.
    pub(crate) fn call_timeout(self, call: Duration) -> Self {
        Self { call, ..self }
    }

    /// Opens the store through the proxy, and waits until it has connections on this runtime.
    pub(crate) async fn store(&self, connections: usize) -> Arc<dyn Store> {
        let store = self.open(connections).await;
        let wanted = self.idle_connections(connections) + self.connections_per_runtime(connections);
        let deadline = Instant::now() + BOUND;
        while self.proxy.counts().open() < wanted {
            assert!(Instant::now() < deadline, "no connections on this runtime");
            store.get(&claim().key).await.unwrap();
        }
        store
    }

    /// The connections of a store without calls: for calls from other runtimes, for maintenance and for the change
    /// feed.
    pub(crate) fn idle_connections(&self, connections: usize) -> u64 {
        if self.has_single_connection { 1 } else { connections.div_ceil(2) as u64 + 2 }
    }

    /// The connections of a runtime that calls often.
    pub(crate) fn connections_per_runtime(&self, connections: usize) -> u64 {
        if self.has_single_connection { 1 } else { connections as u64 }
    }

    /// Opens the store through the proxy.
    pub(crate) async fn open(&self, connections: usize) -> Arc<dyn Store> {
        let (real, proxied) = (port(&self.url).to_string(), self.proxy.port().to_string());
        let url = self.url.replacen(&real, &proxied, 1);
        (self.open)(url, self.prefix.clone(), connections, self.call).await.unwrap()
    }

    /// Opens the store without the proxy, to read what is really there.
    pub(crate) async fn direct(&self) -> Arc<dyn Store> {
        (self.open)(self.url.clone(), self.prefix.clone(), 1, self.call).await.unwrap()
    }

    /// Passes the next request about this key on to the server, and loses its reply.
    pub(crate) fn lose_reply_about(&self, key: &KeyHash) {
        let bytes = key.as_bytes();
        match self.loss {
            LostReply::Reported | LostReply::ClaimsRepeated => self.proxy.lose_reply_to(bytes),
            // In a NATS subject the key is written in hex.
            LostReply::Verified => {
                let spelled: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.proxy.lose_reply_to(spelled);
            }
        }
    }

    /// True when the caller of a claim always gets an error when its reply was lost.
    pub(crate) fn reports_lost_claims(&self) -> bool {
        self.loss == LostReply::Reported
    }

    /// True when calls wait in a queue of their runtime.
    pub(crate) fn has_queues(&self) -> bool {
        self.loss != LostReply::Verified
    }

    /// Asserts that a claim whose reply was lost is Unavailable, unless the store has found out.
    pub(crate) fn lost_claim(&self, answer: Result<Claim>) {
        if answer.is_err() || self.reports_lost_claims() {
            unavailable(answer);
        }
    }

    /// The same for an outcome.
    pub(crate) fn lost_outcome(&self, answer: Result<Completion>) {
        if answer.is_err() || self.loss != LostReply::Verified {
            unavailable(answer);
        }
    }
}

/// The port in `scheme://user@host:port/rest`.
fn port(url: &str) -> u16 {
    let host = url.split('/').nth(2).unwrap();
    host.rsplit(':').next().unwrap().parse().unwrap()
}

/// A new claim of a new key.
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

/// The same claim by another owner.
pub(crate) fn rival(request: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { nonce: Nonce::random(), ..request.clone() }
}

/// An outcome that names its key.
pub(crate) fn outcome(key: &KeyHash) -> Arc<Outcome> {
    Arc::new(Outcome::success(format!("the outcome of {key:?}")))
}

pub(crate) fn complete(lease: &Lease) -> CompleteRequest {
    CompleteRequest { owner: lease.owner, outcome: outcome(&lease.owner.key) }
}

/// The lease in the reply, which must belong to the request.
pub(crate) fn granted(request: &ClaimRequest, claim: Claim) -> Lease {
    match claim {
        Claim::Granted(lease) => {
            assert_eq!((lease.owner.key, lease.owner.nonce), (request.key, request.nonce));
            lease
        }
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Asserts that the error is Unavailable.
pub(crate) fn unavailable<T: std::fmt::Debug>(answer: Result<T>) {
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Repeats the call until the store answers.
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
