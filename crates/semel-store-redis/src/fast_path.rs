//! The fast path: a first claim, a renewal and the completion of a remembered claim, each in one round trip.

use std::time::Duration;

use redis::Cmd;
use semel_core::{
    ClaimRequest, Completion, Owner, Timestamp,
    steps::{self, Change, StoreReply, StoreRequest},
};

use crate::{
    error::odd_reply,
    granted_claims::{Claimed, Claims, Ending},
    names::{Name, Names},
    request::{Ask, Job, Progress},
    script::{FINISH, How, RENEW},
    value::{encode, encode_claim, horizon},
};

/// The claim of a key that is absent, which most are.
pub(crate) fn first(request: &ClaimRequest, now: Timestamp) -> Ask {
    let step = steps::claim(None, request, now);
    match step.change {
        Change::Put(record) => {
            let horizon = horizon(&record.terms);
            let claimed = Claimed { value: encode_claim(record).0, at: now };
            Ask::Set { claimed, horizon, granted: step.answer }
        }
        Change::Keep | Change::Delete => unreachable!("the claim of an absent key is granted"),
    }
}

/// `SET key value NX GET PX horizon`.
pub(crate) fn set_command(key: &[u8], value: &[u8], horizon: u64) -> Cmd {
    let mut set = Cmd::with_capacity(7, key.len() + value.len() + 32);
    set.arg("SET").arg(key).arg(value).arg("NX").arg("GET").arg("PX").arg(horizon);
    set
}

pub(crate) fn renew_command(key: &[u8], how: How, owner: &Owner, max_run: Duration) -> Cmd {
    let max_run = u64::try_from(max_run.as_millis()).unwrap_or(u64::MAX);
    let mut renew = RENEW.call(key, how);
    renew.arg(&pair(owner)[..]).arg(max_run);
    renew
}

impl Job {
    /// The command of several that [end claims](Job::is_ending). Its reply has one for each.
    pub(crate) fn finish(jobs: &[&Self], names: &Names) -> Cmd {
        let keys: Vec<Name> = jobs.iter().map(|job| names.record(job.key())).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let is_known = jobs.iter().all(|job| job.how == How::ByHash);
        let how = if is_known { How::ByHash } else { How::InFull };
        let mut finish = FINISH.call_on(&keys, how);
        finish.arg(&names.channel);
        for job in jobs {
            if let Ask::Finish(ending) = &job.ask {
                let Ending { claimed, completed, kept } = &**ending;
                finish.arg(&claimed[..]).arg(&encode(completed).0[..]).arg(*kept);
            }
        }
        finish
    }

    pub(crate) fn granted(&mut self, claims: &Claims) -> Progress {
        match (&self.call, std::mem::replace(&mut self.ask, Ask::Look)) {
            (StoreRequest::Claim(request), Ask::Set { claimed, granted, .. }) => {
                claims.remember(request.nonce, claimed);
                Progress::Done(Ok(StoreReply::Claim(granted)))
            }
            _ => Progress::MixedUp(odd_reply()),
        }
    }

    /// The server put the outcome where the claim was.
    pub(crate) fn finished(&self) -> Progress {
        match &self.ask {
            Ask::Finish(_) => Progress::Done(Ok(StoreReply::Complete(Completion::Recorded))),
            _ => Progress::MixedUp(odd_reply()),
        }
    }
}

/// Nonce and token as they stand in a value.
fn pair(owner: &Owner) -> [u8; 24] {
    let mut pair = [0; 24];
    pair[..16].copy_from_slice(owner.nonce.as_bytes());
    pair[16..].copy_from_slice(&owner.token.to_be_bytes());
    pair
}
