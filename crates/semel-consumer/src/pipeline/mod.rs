//! The pipeline: the stages between a source and a handler, as tower layers.
#![doc = include_str!("../docs/pipeline.md")]

pub(crate) mod backoff;
mod breaker;
mod claim;
mod errors;
mod lookup;
pub(crate) mod park;
mod retry;
mod track_ids;
#[cfg(feature = "inbox")]
mod transaction;
mod validation;

#[cfg(feature = "inbox")]
pub(crate) use self::transaction::process_batch;
#[cfg(feature = "inbox")]
pub use self::transaction::{TransactionLayer, TransactionStage};
pub use self::{
    backoff::Backoff,
    breaker::{BreakerPosition, CircuitBreaker, CircuitBreakerLayer, CircuitBreakerStage},
    claim::{ClaimLayer, ClaimStage},
    errors::{ATTEMPTS_EXHAUSTED, ErrorHandling, ErrorHandlingLayer},
    lookup::{LookupLayer, LookupStage},
    park::{ParkLayer, ParkStage},
    retry::{RetryLayer, RetryStage},
    track_ids::{TrackIdsLayer, TrackIdsStage},
    validation::{OnMismatch, UnknownType, Validation, ValidationLayer},
};
pub(crate) use self::{errors::DeadLetters, validation::ValidationRules};
