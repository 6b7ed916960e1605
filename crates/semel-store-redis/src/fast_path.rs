//! The fast path: a first claim, a renewal and the completion of a remembered claim, each in one round trip.

use std::time::Duration;

use redis::Cmd;
use semel_core::{
    ClaimRequest, Completion, Owner, Timestamp,
    steps::{self, Change, StoreReply, StoreRequest},
};

use crate::{
    error::unexpected_reply,
    names::{RedisKey, RedisNames},
    remembered_claims::{CompletionWrite, RememberedClaims, WrittenClaim},
    request::{NextCommand, RedisRequest, RequestProgress},
    script::{COMPLETE, RENEW, ScriptCall},
    value::{encode, encode_claim, horizon},
};

/// The claim of a key that is expected to be absent, as most are.
pub(crate) fn first_claim(request: &ClaimRequest, now: Timestamp) -> NextCommand {
    let step = steps::claim(None, request, now);
    match step.change {
        Change::Put(record) => {
            let horizon = horizon(&record.terms);
            let claimed = WrittenClaim { value: encode_claim(record).0, at: now };
            NextCommand::FirstClaim { claimed, horizon, reply: step.answer }
        }
        Change::Keep | Change::Delete => unreachable!("the claim of an absent key is granted"),
    }
}

/// `SET key value NX GET PX horizon`: writes the claim if the key is absent, or returns its record.
pub(crate) fn set_command(key: &[u8], value: &[u8], horizon: u64) -> Cmd {
    let mut set = Cmd::with_capacity(7, key.len() + value.len() + 32);
    set.arg("SET").arg(key).arg(value).arg("NX").arg("GET").arg("PX").arg(horizon);
    set
}

pub(crate) fn renew_command(
    key: &[u8],
    script_call: ScriptCall,
    owner: &Owner,
    max_run: Duration,
) -> Cmd {
    let max_run = u64::try_from(max_run.as_millis()).unwrap_or(u64::MAX);
    let mut renew = RENEW.call(key, script_call);
    renew.arg(&nonce_and_token(owner)[..]).arg(max_run);
    renew
}

impl RedisRequest {
    /// One command for several [completions](RedisRequest::is_completion_write). Its reply is a list with one for each.
    pub(crate) fn complete_command(requests: &[&Self], names: &RedisNames) -> Cmd {
        let keys: Vec<RedisKey> =
            requests.iter().map(|request| names.record(request.key())).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let all_by_hash = requests.iter().all(|request| request.script_call == ScriptCall::ByHash);
        let script_call = if all_by_hash { ScriptCall::ByHash } else { ScriptCall::InFull };
        let mut complete = COMPLETE.call_on(&keys, script_call);
        complete.arg(&names.channel);
        for request in requests {
            if let NextCommand::Complete(write) = &request.next {
                let CompletionWrite { claimed, completed, kept } = &**write;
                complete.arg(&claimed[..]).arg(&encode(completed).0[..]).arg(*kept);
            }
        }
        complete
    }

    /// The key was absent, and has the claim now.
    pub(crate) fn granted(&mut self, claims: &RememberedClaims) -> RequestProgress {
        match (&self.request, std::mem::replace(&mut self.next, NextCommand::Read)) {
            (StoreRequest::Claim(request), NextCommand::FirstClaim { claimed, reply, .. }) => {
                claims.remember(request.nonce, claimed);
                RequestProgress::Done(Ok(StoreReply::Claim(reply)))
            }
            _ => RequestProgress::WrongReply(unexpected_reply()),
        }
    }

    /// The outcome has replaced the claim.
    pub(crate) fn completed(&self) -> RequestProgress {
        match &self.next {
            NextCommand::Complete(_) => {
                RequestProgress::Done(Ok(StoreReply::Complete(Completion::Recorded)))
            }
            _ => RequestProgress::WrongReply(unexpected_reply()),
        }
    }
}

/// Nonce and token as they are encoded in a value.
fn nonce_and_token(owner: &Owner) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(owner.nonce.as_bytes());
    bytes[16..].copy_from_slice(&owner.token.to_be_bytes());
    bytes
}
