//! Builds real requests from the small numbers of the model.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use semel_core::{
    AbandonRequest, ClaimRequest, CompleteRequest, Decision, Effect, Fingerprint, KeyHash, Nonce,
    Outcome, Owner, ReleaseRequest, RenewRequest, ResolveRequest, Span, Terms,
};
use semel_planted_bugs::StepRequest;

use crate::{
    action::OperatorChoice,
    config::{BACKOFF, MAX_RUN, ModelClient},
    world::{OperatorView, OwnerId, Verb},
};

pub(crate) const KEY: KeyHash = KeyHash::from_bytes([7; 32]);

/// The number of the operator's outcome. Outcomes of claims are numbered like their nonces.
pub(crate) const OPERATOR: u8 = 0;

pub(crate) fn claim(client: &ModelClient, nonce: u8) -> StepRequest {
    StepRequest::Claim(ClaimRequest {
        key: KEY,
        fingerprint: fingerprint(client.fingerprint),
        nonce: to_nonce(nonce),
        terms: Terms {
            lease: ticks(client.lease),
            on_lost_owner: client.on_lost_owner,
            max_attempts: NonZeroU32::new(client.max_attempts.into()),
            retention: ticks(client.retention),
            failure_retention: ticks(client.failure_retention),
        },
        labels: None,
    })
}

pub(crate) fn owner_step(verb: Verb, owner_id: OwnerId, outcome: &Arc<Outcome>) -> StepRequest {
    let owner = Owner { key: KEY, nonce: to_nonce(owner_id.nonce), token: owner_id.token.into() };
    match verb {
        Verb::Renew => StepRequest::Renew(RenewRequest::new(owner, duration(MAX_RUN))),
        Verb::Complete => {
            StepRequest::Complete(CompleteRequest { owner, outcome: outcome.clone() })
        }
        Verb::NoEffect => StepRequest::Release(ReleaseRequest { owner, effect: Effect::None }),
        Verb::Retry => StepRequest::Release(ReleaseRequest { owner, effect: Effect::Possible }),
        Verb::Abandon => StepRequest::Abandon(AbandonRequest { owner, backoff: duration(BACKOFF) }),
    }
}

pub(crate) fn resolve(
    look: &OperatorView,
    choice: OperatorChoice,
    outcome: &Arc<Outcome>,
) -> StepRequest {
    StepRequest::Resolve(ResolveRequest {
        key: KEY,
        seen_nonce: look.nonce.map(to_nonce),
        seen_token: look.token.into(),
        decision: match choice {
            OperatorChoice::Complete => Decision::Complete(outcome.clone()),
            OperatorChoice::Reopen => Decision::Reopen(Effect::Possible),
            OperatorChoice::ReopenClean => Decision::Reopen(Effect::None),
        },
    })
}

/// The outcome of the work of claim `nonce`.
pub(crate) fn outcome(nonce: u8, client: &ModelClient) -> Arc<Outcome> {
    Arc::new(if client.fails {
        Outcome::failure("model", nonce.to_string())
    } else {
        Outcome::success(vec![nonce])
    })
}

pub(crate) fn from_nonce(nonce: Nonce) -> u8 {
    nonce.as_bytes()[0]
}

/// The nonce of a key that died when the claim with this nonce found it released and out of attempts.
pub(crate) fn nonce_of_dead_key(number: u8) -> Nonce {
    to_nonce(!number)
}

pub(crate) fn to_nonce(number: u8) -> Nonce {
    Nonce::from_bytes([number; 16])
}

fn fingerprint(number: u8) -> Fingerprint {
    Fingerprint::from_stored([number; 32])
}

fn ticks(ticks: u8) -> Span {
    Span::from_millis(ticks.into())
}

fn duration(of: u8) -> Duration {
    ticks(of).to_duration()
}
