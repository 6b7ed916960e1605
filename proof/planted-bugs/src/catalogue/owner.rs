//! Bugs in how an owner is recognised.

use semel_core::{OnLostOwner, Owner, State};

use crate::{PlantedBug, StepRequest};

pub(super) const BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "owners are known by their token alone",
        before: |record, call, _| {
            if let (Some(record), Some(owner)) = (record, owner(call)) {
                owner.nonce = record.nonce.unwrap_or(owner.nonce);
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "owners are known by their nonce alone",
        before: |record, call, _| {
            if let (Some(record), Some(owner)) = (record, owner(call)) {
                owner.token = record.token;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "abandon takes a key that has ended",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Abandon(_)) = (record, call) {
                record.state = State::InProgress;
            }
        },
        ..PlantedBug::NONE
    },
    PlantedBug {
        name: "an abandoned key on hold lapses",
        before: |record, call, _| {
            if let (Some(record), StepRequest::Abandon(_)) = (record, call) {
                record.terms.on_lost_owner = OnLostOwner::Rerun;
            }
        },
        ..PlantedBug::NONE
    },
];

fn owner(call: &mut StepRequest) -> Option<&mut Owner> {
    match call {
        StepRequest::Renew(request) => Some(&mut request.owner),
        StepRequest::Complete(request) => Some(&mut request.owner),
        StepRequest::Release(request) => Some(&mut request.owner),
        StepRequest::Abandon(request) => Some(&mut request.owner),
        StepRequest::Claim(_)
        | StepRequest::Resolve(_)
        | StepRequest::Erase
        | StepRequest::Forget
        | StepRequest::Purge => None,
    }
}
