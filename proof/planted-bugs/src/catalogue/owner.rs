//! What is wrong with how an owner is recognised.

use semel_core::{OnLostOwner, Owner, State};

use crate::{Call, Flaw};

pub(super) const FLAWS: &[Flaw] = &[
    Flaw {
        name: "owners are known by their token alone",
        before: |record, call, _| {
            if let (Some(record), Some(owner)) = (record, owner(call)) {
                owner.nonce = record.nonce.unwrap_or(owner.nonce);
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "owners are known by their nonce alone",
        before: |record, call, _| {
            if let (Some(record), Some(owner)) = (record, owner(call)) {
                owner.token = record.token;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "abandon takes a key that has ended",
        before: |record, call, _| {
            if let (Some(record), Call::Abandon(_)) = (record, call) {
                record.state = State::InProgress;
            }
        },
        ..Flaw::NONE
    },
    Flaw {
        name: "an abandoned key on hold lapses",
        before: |record, call, _| {
            if let (Some(record), Call::Abandon(_)) = (record, call) {
                record.terms.on_lost_owner = OnLostOwner::Rerun;
            }
        },
        ..Flaw::NONE
    },
];

fn owner(call: &mut Call) -> Option<&mut Owner> {
    match call {
        Call::Renew(request) => Some(&mut request.owner),
        Call::Complete(request) => Some(&mut request.owner),
        Call::Release(request) => Some(&mut request.owner),
        Call::Abandon(request) => Some(&mut request.owner),
        Call::Claim(_) | Call::Resolve(_) | Call::Erase | Call::Forget | Call::Purge => None,
    }
}
