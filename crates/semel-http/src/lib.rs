//! `Idempotency-Key` for tower and axum services: one effect per request, however often it is sent.
//!
//! Users depend on the crate `semel` with feature `axum` or `http`; this is `semel::http`.
//!
//! ```
//! use semel_core::{Engine, MemoryStore, OnLostOwner};
//! use semel_http::{Authorization, IdempotencyLayer, RoutePolicy};
//! # #[tokio::main] async fn main() -> Result<(), semel_core::Error> {
//! let engine = Engine::builder().store(MemoryStore::new()).build()?;
//! let refunds = RoutePolicy::financial().require_key().on_lost_owner(OnLostOwner::Hold);
//! let layer = IdempotencyLayer::builder(engine)
//!     .namespace("payments")
//!     .principal(Authorization)
//!     .route("POST /refunds/{id}", refunds)
//!     .build()?; // router.layer(layer), behind authentication
//! # let _ = layer; Ok(()) }
//! ```
//!
//! ```text
//! request ─ classify ─┬─ pass      safe method (a key on it is counted), no key, mode off
//!                     ├─ observe   passes, and is counted afterwards
//!                     ├─ refuse    bad key, key missing, principal missing
//!                     └─ protect   read the body ─ fingerprint ─ claim ─┬─ run the handler, record, answer
//!                                                                       ├─ replay the recorded outcome
//!                                                                       └─ answer with a problem
//! ```
//!
//! | | |
//! |---|---|
//! | setting up | [`IdempotencyLayer`], [`RoutePolicy`], [`Mode`] and [`Modes`], [`RouteTemplate`], [`KeyFrom`] |
//! | the principal | [`ExtractPrincipal`]: [`Authorization`], [`TrustedHeader`], [`Anonymous`], closures |
//! | in the handler | [`Idempotency`] (attempt, token, downstream key), [`HandlerVerdict`] |
//! | on the wire | [`header`], the problems in `docs/problems` |

mod answer;
mod attempt;
mod authorize_replay;
mod body;
mod budget;
mod canonical;
mod classify;
mod coarse_timeout;
mod extract;
mod fingerprint;
#[cfg(test)]
mod fuzz;
pub mod header;
mod identity;
mod key;
mod key_from;
mod keyed_request;
mod layer;
mod mismatch;
mod mode;
mod observe;
mod outcome;
mod path;
mod policy;
mod principal;
mod problem;
mod protected;
mod replay;
mod service;
mod state;
pub mod telemetry;
mod template;
mod unprotected;
mod verdict;

pub use body::{BoxError, RequestBody, ResponseBody};
pub use extract::Idempotency;
pub use key_from::KeyFrom;
pub use layer::{IdempotencyLayer, IdempotencyLayerBuilder, NoPrincipal, WithPrincipal};
pub use mode::{Mode, Modes};
pub use path::normal_path;
pub use policy::{RoutePolicy, ServerErrors};
pub use principal::{Anonymous, Authorization, ExtractPrincipal, TrustedHeader};
pub use problem::Problem;
pub use service::{IdempotencyService, ResponseFuture};
pub use template::RouteTemplate;
pub use verdict::HandlerVerdict;
