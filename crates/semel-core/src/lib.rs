//! The core of semel: the protocol, the engine, layers over stores and the memory store. No I/O.
//!
//! Users depend on the crate `semel`; a crate that implements a store depends on this one.
//!
//! | | |
//! |---|---|
//! | identity | [`Scope`], [`Principal`], [`Key`], [`KeyHash`], [`Fingerprint`], [`KeyStrategy`], [`HashSecret`] |
//! | the engine | [`Engine`], [`Context`], [`Answer`], [`RunError`], [`Policy`], [`Verdict`], [`WorkError`] |
//! | the protocol | [`steps`], [`Record`], [`Store`] and the request and reply of each step |
//! | layers over stores | [`Cached`], [`Observed`], [`Arbiter`], [`Failover`] |
//! | records as bytes | [`codec`] |
//! | expired records | [`DueQueue`] |
//! | time | [`Clock`], [`Timestamp`], [`Span`] |
//!
//! A store runs [`steps`] under a lock of its own, or translates them into its server's language. In both cases the
//! conformance suite (crate `semel-conformance`) checks whether it keeps the protocol.

#[doc(hidden)]
pub mod background;
mod canonical;
mod change_feed;
mod classify;
pub mod codec;
mod due;
mod engine;
mod error;
mod finding;
mod fingerprint;
mod hash;
mod key;
mod labels;
mod layers;
mod memory;
mod outcome;
mod parts;
mod policy;
mod record;
mod redact;
mod request;
mod scope;
pub mod steps;
mod store;
mod strategy;
#[doc(hidden)]
pub mod sync;
pub mod telemetry;
mod time;
mod verdict;

pub use change_feed::{ChangeFeed, ChangeObserver, FeedConnection, KeySubscription};
pub use classify::{Classifier, DefaultClassifier, Ending, ErrorClass, WorkError};
pub use due::DueQueue;
pub use engine::{
    Answer, Context, DetailedFingerprint, DownstreamKey, Engine, EngineBuilder, Failed,
    LabelPolicy, RawAnswer, RecordedDigests, RecordedRequest, Retry, RunError, Trial, Unreadable,
};
pub use error::{Error, ErrorKind, Result};
pub use finding::{Finding, Level};
pub use fingerprint::Fingerprint;
pub use hash::HashSecret;
pub use key::{Key, KeyHash};
pub use labels::Labels;
pub use layers::{
    Arbiter, Cached, CachedBuilder, FailbackWindow, Failover, FailoverBuilder, MemoryReplicaCache,
    Observed, Replica, ReplicaCache, UnprotectedKeys,
};
pub use memory::{MemoryStore, MemoryStoreBuilder, WhenFull};
pub use outcome::{Body, Failure, Head, Header, Outcome};
pub use parts::PartDigests;
pub use policy::{Policy, RecordFailures, StoreDown};
pub use record::{Nonce, OnLostOwner, Record, State, Terms, Token};
pub use redact::Redacted;
pub use request::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Current,
    Decision, Effect, Erasure, Forgetting, Lease, ListQuery, Owner, Purged, Release,
    ReleaseRequest, RenewRequest, Renewal, Replay, Resolution, ResolveRequest, Sighting, Stats,
};
pub use scope::{Principal, Scope};
pub use store::{Durability, Store, StoreId, StoreInfo};
pub use strategy::{Content, KeySource, KeyStrategy};
pub use time::{Clock, ManualClock, Span, SystemClock, Timestamp};
pub use verdict::Verdict;
