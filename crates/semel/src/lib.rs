//! One effect per operation over at-least-once delivery.
//!
//! A client retries, a broker redelivers, a process dies half-way: the outcome of an operation is
//! recorded once, and every later caller gets that same outcome.
//!
//! ```
//! use semel::{Engine, Fingerprint, MemoryStore, Principal, Scope, WorkError};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::builder().store(MemoryStore::new()).build()?;
//! let key = Scope::new("payments", Principal::from("user-7"), "charge").key("order-42")?;
//!
//! let charge = |_| async { Ok::<_, WorkError>("receipt-1".to_owned()) };
//! let first = engine.run(key.clone(), Fingerprint::of(&"5 EUR")?, charge).await?;
//! let retry = engine.run(key, Fingerprint::of(&"5 EUR")?, charge).await?;
//! assert_eq!(first.value, retry.value);
//! assert!(!first.replayed && retry.replayed);
//! # Ok(()) }
//! ```
//!
//! - [`Engine`] runs work. Its page draws the states of a key.
//! - [`Policy`] says how long outcomes are kept, and what happens after an owner is lost.
//! - [`Store`] is where records live. Each backend is a feature of this crate: `memory` (default),
//!   `embedded` (a folder, durable), `postgres`, `redis` and `nats` (shared by many processes). [`StoreUrl`]
//!   opens any of them, and [`FromUrl`] makes an engine over one.
//! - `inbox::PgInbox` (feature `postgres`, over a pool with `inbox-sqlx` or `inbox-deadpool`) records events in the
//!   handler's own transaction.
//! - Feature `sealed` is a layer that keeps outcomes and labels encrypted in any store.
//! - Feature `http` is `Idempotency-Key` as a tower layer (`semel::http`), `axum` the same for axum.
//! - Feature `consumer` handles events of a message broker once (`semel::consumer`), `source-nats` reads them from NATS
//!   JetStream, `source-kafka` from Apache Kafka.
//! - [`WorkError`] and [`Verdict`] say how an attempt ended.
//! - [`steps`] is the protocol itself.
//!
//! A store of your own is checked by the crate `semel-conformance`.

mod store;

#[cfg(feature = "sealed")]
pub use self::store::SealOptions;
pub use self::store::{Examined, FromUrl, Migrate, StoreOptions, StoreUrl};

pub use semel_core::{
    AbandonRequest, Abandonment, Answer, Arbiter, Body, Cached, CachedBuilder, ChangeFeed,
    ChangeObserver, Claim, ClaimRequest, Classifier, Clock, CompleteRequest, Completion, Content,
    Context, Current, Decision, DefaultClassifier, DownstreamKey, DueQueue, Durability, Effect,
    Ending, Engine, EngineBuilder, Erasure, Error, ErrorClass, ErrorKind, FailbackWindow, Failed,
    Failover, FailoverBuilder, Failure, Finding, Fingerprint, Forgetting, HashSecret, Head, Header,
    Key, KeyHash, KeySource, KeyStrategy, KeySubscription, LabelPolicy, Labels, Lease, Level,
    ListQuery, ManualClock, Nonce, Observed, OnLostOwner, Outcome, Owner, Policy, Principal,
    Purged, RawAnswer, Record, RecordFailures, Redacted, Release, ReleaseRequest, RenewRequest,
    Renewal, Replay, Replica, ReplicaCache, Resolution, ResolveRequest, Result, Retry, RunError,
    Scope, Sighting, Span, State, Stats, Store, StoreDown, StoreId, StoreInfo, SystemClock, Terms,
    Timestamp, Token, Trial, UnprotectedKeys, Unreadable, Verdict, WorkError, codec, steps,
    telemetry,
};

#[cfg(feature = "embedded")]
pub use semel_store_embedded::{EmbeddedStore, EmbeddedStoreBuilder};

#[cfg(feature = "nats")]
pub use semel_store_nats::{NatsStore, NatsStoreBuilder};

#[cfg(feature = "postgres")]
pub use semel_store_postgres::{Migration, PostgresStore, PostgresStoreBuilder};

/// Events that are recorded in the transaction of their handler.
#[cfg(feature = "postgres")]
pub mod inbox {
    #[cfg(feature = "inbox-deadpool")]
    pub use semel_inbox::DeadpoolTx;
    #[cfg(feature = "inbox-sqlx")]
    pub use semel_inbox::SqlxTx;
    pub use semel_inbox::{
        Claimed, Done, InboxClaim, InboxContext, InboxError, InboxEvent, InboxMaintenance,
        InboxOptions, InboxPolicy, InboxPool, InboxStats, InboxTransaction, InboxTx, InboxVariant,
        MaintenanceReport, MaintenanceTask, PgInbox, PgInboxBuilder, TxError, telemetry,
    };
}

#[cfg(feature = "redis")]
pub use semel_store_redis::{RedisFront, RedisStore, RedisStoreBuilder};

#[cfg(feature = "sealed")]
pub use semel_sealed::{KeyFile, KeyRing, Seal, SealKey, SealKeys, Sealed, Seals, seals_of};

#[cfg(feature = "http")]
pub use semel_http as http;

#[cfg(feature = "consumer")]
pub use semel_consumer as consumer;

#[cfg(feature = "source-kafka")]
pub use semel_source_kafka as source_kafka;

#[cfg(feature = "source-nats")]
pub use semel_source_nats as source_nats;

#[cfg(feature = "memory")]
pub use semel_core::{MemoryReplicaCache, MemoryStore, MemoryStoreBuilder, WhenFull};

/// The README's examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the HTTP guide run as tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/HTTP.md")]
struct HttpGuide;

/// The examples of the inbox guide run as tests.
#[cfg(all(doctest, feature = "inbox-sqlx", feature = "inbox-deadpool"))]
#[doc = include_str!("../../../docs/inbox.md")]
struct InboxGuide;

/// The examples of the guide to consumers run as tests, or compile if they need a server.
#[cfg(all(doctest, feature = "nats", feature = "source-nats", feature = "inbox-deadpool"))]
#[doc = include_str!("../../../docs/guides/consume-nats.md")]
struct ConsumeNatsGuide;

/// The examples of the guide to Kafka compile.
#[cfg(all(doctest, feature = "nats", feature = "source-kafka", feature = "inbox-deadpool"))]
#[doc = include_str!("../../../docs/guides/consume-kafka.md")]
struct ConsumeKafkaGuide;
