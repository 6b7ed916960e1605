//! One request on its way: which command it sends next, and what the reply means.
//!
//! ```text
//! claim:            SET NX GET ──nil──▶ granted         everything else:  read
//!                       │ a record                                          │
//!                       ├─ decides it ──▶ reply                     the step decides
//!                       ▼                                       │            │
//!                    contend ──▶ granted, busy                reply        swap ──▶ done
//!                       │ neither                                            │ the record has changed
//!                       └────────────▶ the step decides ◀────────────────────┘
//! ```
//! `fast_path.rs` has the commands that need one round trip: the first claim, the renewal, and the completion
//! of a claim that this process remembers. `slow_path.rs` has the others.

use std::time::Duration;

use redis::{Cmd, Value};
use semel_core::{
    AbandonRequest, Claim, ClaimRequest, Error, ErrorKind, KeyHash, OnLostOwner, Owner,
    ReleaseRequest, RenewRequest, Renewal, Result, State, Timestamp,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    connection::CommandReply,
    error::{CommandError, unavailable, unexpected_reply},
    fast_path::{first_claim, renew_command, set_command},
    names::RedisNames,
    remembered_claims::{CompletionWrite, RememberedClaims, WrittenClaim},
    script::{READ, ScriptCall},
    script_reply::ScriptReply,
    slow_path::{CompareAndSwap, ContendedClaim},
    value::{StoredValue, UnreadableValue},
};

/// Rounds after which a request fails because other requests keep changing its key.
const MAX_ROUNDS: u32 = 64;

/// A time this many milliseconds ago has passed on the server's clock too.
const DUE: u64 = 1000;

/// A store request, and the command that it sends next.
#[derive(Debug)]
pub(crate) struct RedisRequest {
    pub(crate) request: StoreRequest,
    pub(crate) next: NextCommand,
    pub(crate) script_call: ScriptCall,
    rounds: u32,
    /// Set after the server refused a write because its memory is full.
    pub(crate) full: Option<Error>,
}

/// The command that a request sends next.
#[derive(Debug)]
pub(crate) enum NextCommand {
    /// `SET NX GET`: most claims are the first of their key.
    FirstClaim {
        claimed: WrittenClaim,
        horizon: u64,
        reply: Claim,
    },
    /// A claim that found a record.
    Contend(Box<ContendedClaim>),
    Renew {
        owner: Owner,
        max_run: Duration,
    },
    Complete(Box<CompletionWrite>),
    Read,
    Swap(Box<CompareAndSwap>),
}

/// What a reply means for its request.
#[derive(Debug)]
pub(crate) enum RequestProgress {
    Done(Result<StoreReply>),
    /// Decided by what was read, without a write. The request can be sent again.
    DoneByReading(StoreReply),
    /// The request has to send another command.
    Continue,
    /// The connection cannot be used any more.
    ConnectionLost(Error),
    /// The reply belongs to another command, so no reply on this connection can be trusted.
    WrongReply(Error),
}

/// The index that a key must be in before its record is written, and the time when a purge checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexAdd {
    Held(Timestamp),
    Stuck(Timestamp),
}

impl RedisRequest {
    pub(crate) fn new(request: StoreRequest, now: Timestamp, claims: &RememberedClaims) -> Self {
        if let StoreRequest::Renew(RenewRequest { owner, .. })
        | StoreRequest::Release(ReleaseRequest { owner, .. })
        | StoreRequest::Abandon(AbandonRequest { owner, .. }) = &request
        {
            claims.forget(&owner.nonce);
        }
        let next = match &request {
            StoreRequest::Claim(request) => first_claim(request, now),
            StoreRequest::Renew(request) => {
                NextCommand::Renew { owner: request.owner, max_run: request.max_run }
            }
            StoreRequest::Complete(request) => claims
                .completion(request, now)
                .map(Box::new)
                .map_or(NextCommand::Read, NextCommand::Complete),
            StoreRequest::Release(_)
            | StoreRequest::Abandon(_)
            | StoreRequest::Resolve(_)
            | StoreRequest::Erase(_)
            | StoreRequest::Forget(_)
            | StoreRequest::Purge(_)
            | StoreRequest::Get(_) => NextCommand::Read,
        };
        Self { request, next, script_call: ScriptCall::ByHash, rounds: 0, full: None }
    }

    /// True when the reply is right even if the request was executed before and that reply was lost. A claim
    /// recognises its own nonce (T2). A completion that finds no record, or a release that finds the key open,
    /// cannot know whether it did this itself.
    pub(crate) const fn is_repeatable(&self) -> bool {
        matches!(
            self.request,
            StoreRequest::Claim(_) | StoreRequest::Renew(_) | StoreRequest::Get(_)
        )
    }

    /// Starts again with the first command.
    pub(crate) fn repeat(&mut self, now: Timestamp, claims: &RememberedClaims) {
        *self = Self::new(self.request.clone(), now, claims);
    }

    pub(crate) const fn key(&self) -> &KeyHash {
        self.request.key()
    }

    pub(crate) const fn is_claim(&self) -> bool {
        matches!(self.request, StoreRequest::Claim(_))
    }

    /// True when its next command writes a record.
    pub(crate) const fn is_about_to_write(&self) -> bool {
        match &self.next {
            NextCommand::Swap(_) => true,
            NextCommand::Contend(contend) => contend.grant.is_some(),
            NextCommand::FirstClaim { .. }
            | NextCommand::Renew { .. }
            | NextCommand::Complete(_)
            | NextCommand::Read => false,
        }
    }

    /// True when its next command renews the lease of the claim's own owner (T2).
    pub(crate) fn is_lease_renewing_claim(&self) -> bool {
        matches!(&self.next, NextCommand::Contend(contend) if self.is_own_claim(&contend.stored))
    }

    pub(crate) fn outcome_bytes(&self) -> usize {
        self.request.outcome_bytes()
    }

    /// The next command.
    pub(crate) fn command(&self, names: &RedisNames) -> Cmd {
        let key = names.record(self.key());
        match &self.next {
            NextCommand::FirstClaim { claimed, horizon, .. } => {
                set_command(&key, &claimed.value, *horizon)
            }
            NextCommand::Renew { owner, max_run } => {
                renew_command(&key, self.script_call, owner, *max_run)
            }
            NextCommand::Complete(_) => Self::complete_command(&[self], names),
            NextCommand::Read => READ.call(&key, self.script_call),
            NextCommand::Contend(contend) => contend.command(&key, self.script_call, self.nonce()),
            NextCommand::Swap(swap) => swap.command(
                &key,
                self.script_call,
                self.request.invalidates_copies(),
                &names.channel,
            ),
        }
    }

    /// True for the completion of a claim that this process remembers.
    pub(crate) const fn is_completion_write(&self) -> bool {
        matches!(self.next, NextCommand::Complete(_))
    }

    /// The index entry that must exist before the command is executed.
    pub(crate) fn index_add(&self, now: Timestamp) -> Option<IndexAdd> {
        let put = match &self.next {
            NextCommand::FirstClaim { .. } => return self.first_claim_index(now),
            NextCommand::Contend(contend) => contend.grant.as_ref(),
            NextCommand::Swap(swap) => swap.put.as_ref(),
            NextCommand::Renew { .. } | NextCommand::Complete(_) | NextCommand::Read => None,
        }?;
        match (put.state, put.terms.on_lost_owner) {
            // It was claimed before, and is in the index since.
            (State::InProgress, OnLostOwner::Hold) if put.contested => None,
            (State::InProgress, OnLostOwner::Hold) => Some(IndexAdd::Held(put.lease_until)),
            (State::Unknown | State::Dead, _) => Some(IndexAdd::Stuck(now)),
            (State::InProgress | State::Open | State::Completed | State::Erased, _) => None,
        }
    }

    /// Due at once: if the key has a claim whose owner is lost, this entry must not delay its purge.
    fn first_claim_index(&self, now: Timestamp) -> Option<IndexAdd> {
        let StoreRequest::Claim(ClaimRequest { terms, .. }) = &self.request else { return None };
        let due = Timestamp::from_millis(now.as_millis().saturating_sub(DUE));
        (terms.on_lost_owner == OnLostOwner::Hold).then_some(IndexAdd::Held(due))
    }

    /// Takes the reply to [`RedisRequest::command`]. `now` is an estimate; `server_time` is set if
    /// the reply contains it.
    pub(crate) fn accept(
        &mut self,
        reply: CommandReply,
        now: Timestamp,
        server_time: &mut Option<Timestamp>,
        claims: &RememberedClaims,
    ) -> RequestProgress {
        self.rounds += 1;
        let progress = match reply {
            Err(error) => self.command_failed(error),
            Ok(value) => {
                self.script_call = ScriptCall::ByHash;
                match self.read_reply(value, now, server_time, claims) {
                    Ok(progress) => progress,
                    Err(UnreadableValue::Value(error)) => RequestProgress::Done(Err(error)),
                    Err(UnreadableValue::OtherKey(error)) => {
                        tracing::error!(%error, "redis: a reply holds the record of another key");
                        RequestProgress::WrongReply(error)
                    }
                }
            }
        };
        match progress {
            RequestProgress::Continue if self.rounds >= MAX_ROUNDS => {
                RequestProgress::Done(Err(overtaken()))
            }
            progress => progress,
        }
    }

    fn command_failed(&mut self, error: CommandError) -> RequestProgress {
        match error {
            CommandError::Connection(error) => RequestProgress::ConnectionLost(error),
            CommandError::NoScript if self.script_call == ScriptCall::ByHash => {
                self.script_call = ScriptCall::InFull;
                RequestProgress::Continue
            }
            CommandError::NoScript | CommandError::UnexpectedReply => {
                RequestProgress::WrongReply(unexpected_reply())
            }
            // A full server still answers reads, and the record may decide the claim.
            CommandError::Command(error)
                if error.kind() == ErrorKind::Full && self.is_claim() && self.full.is_none() =>
            {
                self.full = Some(error);
                self.next = NextCommand::Read;
                RequestProgress::Continue
            }
            CommandError::Command(error) => RequestProgress::Done(Err(error)),
        }
    }

    fn read_reply(
        &mut self,
        value: Value,
        now: Timestamp,
        server_time: &mut Option<Timestamp>,
        claims: &RememberedClaims,
    ) -> Result<RequestProgress, UnreadableValue> {
        if let NextCommand::FirstClaim { .. } = &self.next {
            return match value {
                Value::Nil => Ok(self.granted(claims)),
                Value::BulkString(bytes) => {
                    self.claim_met_record(StoredValue::read(self.key(), bytes)?, now)
                }
                _ => Ok(RequestProgress::WrongReply(unexpected_reply())),
            };
        }
        let reply = match ScriptReply::read(value) {
            Ok(reply) => reply,
            Err(error) => return Ok(RequestProgress::WrongReply(error)),
        };
        *server_time = reply.now().or(*server_time);
        match reply {
            ScriptReply::Undecided(status, value) => self.decide(status, value),
            ScriptReply::Busy(status) => self.busy(status),
            ScriptReply::Done(_) => Ok(self.done()),
            ScriptReply::Completed => Ok(self.completed()),
        }
    }

    /// The script did what its command wanted.
    fn done(&mut self) -> RequestProgress {
        RequestProgress::Done(Ok(match std::mem::replace(&mut self.next, NextCommand::Read) {
            NextCommand::Contend(contend) => contend.reply,
            NextCommand::Swap(swap) => swap.reply,
            NextCommand::Renew { .. } => StoreReply::Renew(Renewal::Extended),
            NextCommand::FirstClaim { .. } | NextCommand::Complete(_) | NextCommand::Read => {
                return RequestProgress::WrongReply(unexpected_reply());
            }
        }))
    }

    /// Forgets what a wrong reply made this process remember.
    #[cold]
    pub(crate) fn forget(&self, claims: &RememberedClaims) {
        if let StoreRequest::Claim(request) = &self.request {
            claims.forget(&request.nonce);
        }
    }

    fn nonce(&self) -> &[u8] {
        match &self.request {
            StoreRequest::Claim(request) => request.nonce.as_bytes(),
            _ => &[],
        }
    }
}

fn overtaken() -> Error {
    unavailable("redis: other requests kept changing the key during this call; try again")
}

#[cfg(test)]
mod tests {
    use semel_core::Nonce;

    use super::*;

    fn progress(next: NextCommand, request: StoreRequest, reply: Value) -> RequestProgress {
        let mut request =
            RedisRequest { request, next, script_call: ScriptCall::ByHash, rounds: 0, full: None };
        request.accept(Ok(reply), Timestamp::default(), &mut None, &RememberedClaims::new())
    }

    #[test]
    fn a_reply_of_another_script_is_refused() {
        let owner = Owner { key: KeyHash::from_bytes([7; 32]), nonce: Nonce::random(), token: 1 };
        let max_run = Duration::from_secs(1);
        let renewal = || StoreRequest::Renew(RenewRequest::new(owner, max_run));
        let renew = || NextCommand::Renew { owner, max_run };
        assert!(matches!(
            progress(renew(), renewal(), Value::Int(1)),
            RequestProgress::Done(Ok(_))
        ));
        assert!(matches!(
            progress(renew(), renewal(), Value::Okay),
            RequestProgress::WrongReply(_)
        ));
    }
}
