//! One call on its way: what is asked of the server next, and what its reply means.
//!
//! ```text
//! claim:            SET NX GET ──nil──▶ granted         everything else:  look
//!                       │ a value                                           │
//!                       ├─ says it all ─▶ answered            the pure step decides
//!                       ▼                                       │            │
//!                    contend ──▶ granted, busy               answer        swap ──▶ done
//!                       │ neither                                            │ changed meanwhile
//!                       └──────────▶ the pure step decides ◀─────────────────┘
//! ```
//! A renewal begins with a script of its own, which does it all for the owner; so does the completion of a
//! claim that this process remembers.

use std::time::Duration;

use redis::{Cmd, Value};
use semel_core::{
    AbandonRequest, Claim, ClaimRequest, Error, ErrorKind, KeyHash, OnLostOwner, Owner,
    ReleaseRequest, RenewRequest, Renewal, Result, State, Timestamp,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    connection::Reply,
    error::{Trouble, odd_reply, unavailable},
    fast_path::{first, renew_command, set_command},
    granted_claims::{Claimed, Claims, Ending},
    names::Names,
    script::{How, LOOK},
    script_reply::Told,
    slow_path::{Contend, Swap},
    value::{Seen, Unreadable},
};

/// A call that others overtook this often is given up.
const MAX_ROUNDS: u32 = 64;

/// So many milliseconds ago is past by the server's clock too.
const DUE: u64 = 1000;

/// One call on its way.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) call: StoreRequest,
    pub(crate) ask: Ask,
    pub(crate) how: How,
    rounds: u32,
    /// The server refused a write for want of memory.
    pub(crate) full: Option<Error>,
}

/// What is asked of the server next.
#[derive(Debug)]
pub(crate) enum Ask {
    /// A first claim.
    Set {
        claimed: Claimed,
        horizon: u64,
        granted: Claim,
    },
    /// A claim that met a record: what to put if it may be granted, and what to say then.
    Contend(Box<Contend>),
    Renew {
        owner: Owner,
        max_run: Duration,
    },
    Finish(Box<Ending>),
    Look,
    Swap(Box<Swap>),
}

/// What became of a job with a reply.
#[derive(Debug)]
pub(crate) enum Progress {
    Done(Result<StoreReply>),
    /// Done as well, but decided from what was read: the same can be asked again.
    Read(StoreReply),
    /// It has something else to ask.
    Again,
    /// Nothing more can come from this connection.
    Broken(Error),
    /// The reply is no answer to what was asked, so none from this connection can be trusted.
    MixedUp(Error),
}

/// Which index a record has to be in before it is written, and at which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Held(Timestamp),
    Stuck(Timestamp),
}

impl Job {
    pub(crate) fn new(call: StoreRequest, now: Timestamp, claims: &Claims) -> Self {
        if let StoreRequest::Renew(RenewRequest { owner, .. })
        | StoreRequest::Release(ReleaseRequest { owner, .. })
        | StoreRequest::Abandon(AbandonRequest { owner, .. }) = &call
        {
            claims.forget(&owner.nonce);
        }
        let ask = match &call {
            StoreRequest::Claim(request) => first(request, now),
            StoreRequest::Renew(request) => {
                Ask::Renew { owner: request.owner, max_run: request.max_run }
            }
            StoreRequest::Complete(request) => {
                claims.end(request, now).map(Box::new).map_or(Ask::Look, Ask::Finish)
            }
            StoreRequest::Release(_)
            | StoreRequest::Abandon(_)
            | StoreRequest::Resolve(_)
            | StoreRequest::Erase(_)
            | StoreRequest::Forget(_)
            | StoreRequest::Purge(_)
            | StoreRequest::Get(_) => Ask::Look,
        };
        Self { call, ask, how: How::ByHash, rounds: 0, full: None }
    }

    /// Whether its answer is right also if it was made before and the reply was lost. A claim is recognised by its
    /// nonce (T2). A completion that finds nothing, or a release that finds the key open, may be its own trace.
    pub(crate) const fn may_repeat(&self) -> bool {
        matches!(self.call, StoreRequest::Claim(_) | StoreRequest::Renew(_) | StoreRequest::Get(_))
    }

    /// Begins anew.
    pub(crate) fn repeat(&mut self, now: Timestamp, claims: &Claims) {
        *self = Self::new(self.call.clone(), now, claims);
    }

    pub(crate) const fn key(&self) -> &KeyHash {
        self.call.key()
    }

    pub(crate) const fn is_claim(&self) -> bool {
        matches!(self.call, StoreRequest::Claim(_))
    }

    /// True when it knows what to write, and has yet to ask for it.
    pub(crate) const fn is_changing(&self) -> bool {
        match &self.ask {
            Ask::Swap(_) => true,
            Ask::Contend(contend) => contend.grant.is_some(),
            Ask::Set { .. } | Ask::Renew { .. } | Ask::Finish(_) | Ask::Look => false,
        }
    }

    /// True when its next command gives an owner its lease again (T2).
    pub(crate) fn is_rearming(&self) -> bool {
        matches!(&self.ask, Ask::Contend(contend) if self.is_mine(&contend.seen))
    }

    pub(crate) fn outcome_bytes(&self) -> usize {
        self.call.outcome_bytes()
    }

    /// The command that asks it.
    pub(crate) fn command(&self, names: &Names) -> Cmd {
        let key = names.record(self.key());
        match &self.ask {
            Ask::Set { claimed, horizon, .. } => set_command(&key, &claimed.value, *horizon),
            Ask::Renew { owner, max_run } => renew_command(&key, self.how, owner, *max_run),
            Ask::Finish(_) => Self::finish(&[self], names),
            Ask::Look => LOOK.call(&key, self.how),
            Ask::Contend(contend) => contend.command(&key, self.how, self.nonce()),
            Ask::Swap(swap) => {
                swap.command(&key, self.how, self.call.invalidates_copies(), &names.channel)
            }
        }
    }

    /// Whether it ends a claim that this process remembers.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self.ask, Ask::Finish(_))
    }

    /// Where the record has to be found before the command may happen.
    pub(crate) fn watch(&self, now: Timestamp) -> Option<Watch> {
        let put = match &self.ask {
            Ask::Set { .. } => return self.watch_first(now),
            Ask::Contend(contend) => contend.grant.as_ref(),
            Ask::Swap(swap) => swap.put.as_ref(),
            Ask::Renew { .. } | Ask::Finish(_) | Ask::Look => None,
        }?;
        match (put.state, put.terms.on_lost_owner) {
            (State::InProgress, OnLostOwner::Hold) => Some(Watch::Held(now.after(put.terms.lease))),
            (State::Unknown | State::Dead, _) => Some(Watch::Stuck(now)),
            (State::InProgress | State::Open | State::Completed | State::Erased, _) => None,
        }
    }

    /// At once: if it meets a claim whose owner is lost, that one must not be looked at later for it.
    fn watch_first(&self, now: Timestamp) -> Option<Watch> {
        let StoreRequest::Claim(ClaimRequest { terms, .. }) = &self.call else { return None };
        let due = Timestamp::from_millis(now.as_millis().saturating_sub(DUE));
        (terms.on_lost_owner == OnLostOwner::Hold).then_some(Watch::Held(due))
    }

    /// Takes the reply to [`Job::command`]. `now` is an estimate; `told` learns the server's time.
    pub(crate) fn take(
        &mut self,
        reply: Reply,
        now: Timestamp,
        told: &mut Option<Timestamp>,
        claims: &Claims,
    ) -> Progress {
        self.rounds += 1;
        let progress = match reply {
            Err(trouble) => self.trouble(trouble),
            Ok(value) => {
                self.how = How::ByHash;
                match self.taken(value, now, told, claims) {
                    Ok(progress) => progress,
                    Err(Unreadable::Value(error)) => Progress::Done(Err(error)),
                    Err(Unreadable::MixedUp(error)) => {
                        tracing::error!(%error, "redis: replies are mixed up");
                        Progress::MixedUp(error)
                    }
                }
            }
        };
        match progress {
            Progress::Again if self.rounds >= MAX_ROUNDS => Progress::Done(Err(overtaken())),
            progress => progress,
        }
    }

    fn trouble(&mut self, trouble: Trouble) -> Progress {
        match trouble {
            Trouble::Link(error) => Progress::Broken(error),
            Trouble::NoScript if self.how == How::ByHash => {
                self.how = How::InFull;
                Progress::Again
            }
            Trouble::NoScript | Trouble::Odd => Progress::MixedUp(odd_reply()),
            // A full server still says how a key stands.
            Trouble::Call(error)
                if error.kind() == ErrorKind::Full && self.is_claim() && self.full.is_none() =>
            {
                self.full = Some(error);
                self.ask = Ask::Look;
                Progress::Again
            }
            Trouble::Call(error) => Progress::Done(Err(error)),
        }
    }

    fn taken(
        &mut self,
        value: Value,
        now: Timestamp,
        told: &mut Option<Timestamp>,
        claims: &Claims,
    ) -> Result<Progress, Unreadable> {
        if let Ask::Set { .. } = &self.ask {
            return match value {
                Value::Nil => Ok(self.granted(claims)),
                Value::BulkString(bytes) => self.met(Seen::read(self.key(), bytes)?, now),
                _ => Ok(Progress::MixedUp(odd_reply())),
            };
        }
        let reply = match Told::read(value) {
            Ok(reply) => reply,
            Err(error) => return Ok(Progress::MixedUp(error)),
        };
        *told = reply.now().or(*told);
        match reply {
            Told::Stands(standing, value) => self.decide(standing, value),
            Told::Marked(standing) => self.marked(standing),
            Told::Done(_) => Ok(self.done()),
            Told::Finished => Ok(self.finished()),
        }
    }

    /// The server did all it was asked for.
    fn done(&mut self) -> Progress {
        Progress::Done(Ok(match std::mem::replace(&mut self.ask, Ask::Look) {
            Ask::Contend(contend) => contend.granted,
            Ask::Swap(swap) => swap.said,
            Ask::Renew { .. } => StoreReply::Renew(Renewal::Extended),
            Ask::Set { .. } | Ask::Finish(_) | Ask::Look => return Progress::MixedUp(odd_reply()),
        }))
    }

    /// What it was told is not believed.
    #[cold]
    pub(crate) fn forget(&self, claims: &Claims) {
        if let StoreRequest::Claim(request) = &self.call {
            claims.forget(&request.nonce);
        }
    }

    fn nonce(&self) -> &[u8] {
        match &self.call {
            StoreRequest::Claim(request) => request.nonce.as_bytes(),
            _ => &[],
        }
    }
}

fn overtaken() -> Error {
    unavailable("redis: the key changed again and again under this call; try again")
}

#[cfg(test)]
mod tests {
    use semel_core::Nonce;

    use super::*;

    fn taken(ask: Ask, call: StoreRequest, reply: Value) -> Progress {
        let mut job = Job { call, ask, how: How::ByHash, rounds: 0, full: None };
        job.take(Ok(reply), Timestamp::default(), &mut None, &Claims::new())
    }

    #[test]
    fn another_scripts_reply_is_not_taken() {
        let owner = Owner { key: KeyHash::from_bytes([7; 32]), nonce: Nonce::random(), token: 1 };
        let max_run = Duration::from_secs(1);
        let renewal = || StoreRequest::Renew(RenewRequest { owner, max_run });
        let renew = || Ask::Renew { owner, max_run };
        assert!(matches!(taken(renew(), renewal(), Value::Int(1)), Progress::Done(Ok(_))));
        assert!(matches!(taken(renew(), renewal(), Value::Okay), Progress::MixedUp(_)));
    }
}
