//! `Idempotency-Key` for tower and axum services: one effect per request, however often it is sent.

mod authorize;
mod body;
mod budget;
mod canonical;
mod extract;
mod fingerprint;
#[cfg(test)]
mod fuzz;
mod guard;
pub mod header;
mod key;
mod key_from;
mod layer;
mod mode;
mod observe;
mod plan;
mod policy;
mod principal;
mod problem;
mod replay;
mod run;
mod service;
pub mod telemetry;
mod template;
mod verdict;

pub use body::{BoxError, RequestBody, ResponseBody};
pub use extract::Idempotency;
pub use key_from::KeyFrom;
pub use layer::{IdempotencyLayer, IdempotencyLayerBuilder, NoPrincipal, WithPrincipal};
pub use mode::{Mode, Modes};
pub use policy::{RoutePolicy, ServerErrors};
pub use principal::{Anonymous, Authorization, ExtractPrincipal, TrustedHeader};
pub use service::{IdempotencyService, ResponseFuture};
pub use template::RouteTemplate;
pub use verdict::HandlerVerdict;
