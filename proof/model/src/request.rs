//! The model's small numbers as the real requests.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use semel_core::{
    AbandonRequest, ClaimRequest, CompleteRequest, Decision, Effect, Fingerprint, KeyHash, Nonce,
    Outcome, Owner, ReleaseRequest, RenewRequest, ResolveRequest, Span, Terms,
};
use semel_planted_bugs::Call;

use crate::{
    action::Choice,
    config::{BACKOFF, Client, MAX_RUN},
    world::{Look, Pair, Verb},
};

pub(crate) const KEY: KeyHash = KeyHash::from_bytes([7; 32]);

/// The operator's outcome stands beside those of the claims, which are numbered like their nonces.
pub(crate) const OPERATOR: u8 = 0;

pub(crate) fn claim(client: &Client, nonce: u8) -> Call {
    Call::Claim(ClaimRequest {
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

pub(crate) fn owner_step(verb: Verb, pair: Pair, outcome: &Arc<Outcome>) -> Call {
    let owner = Owner { key: KEY, nonce: to_nonce(pair.nonce), token: pair.token.into() };
    match verb {
        Verb::Renew => Call::Renew(RenewRequest { owner, max_run: duration(MAX_RUN) }),
        Verb::Complete => Call::Complete(CompleteRequest { owner, outcome: outcome.clone() }),
        Verb::NoEffect => Call::Release(ReleaseRequest { owner, effect: Effect::None }),
        Verb::Retry => Call::Release(ReleaseRequest { owner, effect: Effect::Possible }),
        Verb::Abandon => Call::Abandon(AbandonRequest { owner, backoff: duration(BACKOFF) }),
    }
}

pub(crate) fn resolve(look: &Look, choice: Choice, outcome: &Arc<Outcome>) -> Call {
    Call::Resolve(ResolveRequest {
        key: KEY,
        seen_nonce: look.nonce.map(to_nonce),
        seen_token: look.token.into(),
        decision: match choice {
            Choice::Complete => Decision::Complete(outcome.clone()),
            Choice::Reopen => Decision::Reopen(Effect::Possible),
            Choice::ReopenClean => Decision::Reopen(Effect::None),
        },
    })
}

/// What the work of claim `nonce` produces.
pub(crate) fn outcome(nonce: u8, client: &Client) -> Arc<Outcome> {
    Arc::new(if client.fails {
        Outcome::failure("model", nonce.to_string())
    } else {
        Outcome::success(vec![nonce])
    })
}

pub(crate) fn from_nonce(nonce: Nonce) -> u8 {
    nonce.as_bytes()[0]
}

/// The nonce of a key that died when the claim with this nonce found it released.
pub(crate) fn of_nobody(number: u8) -> Nonce {
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
