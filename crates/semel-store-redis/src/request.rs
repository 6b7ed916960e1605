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

use bytes::Bytes;
use redis::{Cmd, Value};
use semel_core::{
    AbandonRequest, Claim, ClaimRequest, Completion, Error, ErrorKind, KeyHash, OnLostOwner, Owner,
    Record, ReleaseRequest, RenewRequest, Renewal, Result, State, Timestamp,
    steps::{self, Change, StoreReply, StoreRequest},
};

use crate::{
    connection::Reply,
    error::{Trouble, odd_reply, unavailable},
    granted_claims::{Claimed, Claims, Ending},
    names::{Name, Names},
    script::{CONTEND, FINISH, How, LOOK, RENEW, SWAP},
    script_reply::{Standing, Told},
    value::{Expiry, Seen, Unreadable, encode, encode_claim, horizon},
};

/// A call that others overtook this often is given up.
const MAX_ROUNDS: u32 = 64;

/// So many milliseconds ago is past by the server's clock too.
const DUE: u64 = 1000;

/// One call on its way.
#[derive(Debug)]
pub(crate) struct Job {
    call: StoreRequest,
    ask: Ask,
    how: How,
    rounds: u32,
    /// The server refused a write for want of memory.
    full: Option<Error>,
}

/// What is asked of the server next.
#[derive(Debug)]
enum Ask {
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

#[derive(Debug)]
struct Contend {
    seen: Seen,
    grant: Option<Record>,
    granted: StoreReply,
}

#[derive(Debug)]
struct Swap {
    head: Bytes,
    expiry: Expiry,
    put: Option<Record>,
    said: StoreReply,
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
        let (key, channel) = (names.record(self.key()), &names.channel);
        match &self.ask {
            Ask::Set { claimed: Claimed { value, .. }, horizon, .. } => {
                let mut set = Cmd::with_capacity(7, key.len() + value.len() + 32);
                set.arg("SET")
                    .arg(&key[..])
                    .arg(&value[..])
                    .arg("NX")
                    .arg("GET")
                    .arg("PX")
                    .arg(*horizon);
                set
            }
            Ask::Contend(contend) => {
                let Contend { seen, grant, .. } = &**contend;
                let value = grant.as_ref().map(|record| encode(record).0).unwrap_or_default();
                let horizon = grant.as_ref().map_or(0, |record| horizon(&record.terms));
                let mut claim = CONTEND.call(&key, self.how);
                claim.arg(&seen.head()[..]).arg(&value[..]).arg(horizon);
                claim.arg(self.nonce());
                claim
            }
            Ask::Renew { owner, max_run } => {
                let max_run = u64::try_from(max_run.as_millis()).unwrap_or(u64::MAX);
                let mut renew = RENEW.call(&key, self.how);
                renew.arg(&pair(owner)[..]).arg(max_run);
                renew
            }
            Ask::Finish(_) => Self::finish(&[self], names),
            Ask::Look => LOOK.call(&key, self.how),
            Ask::Swap(swap) => {
                let Swap { head, expiry, put, .. } = &**swap;
                let (value, expires) = put.as_ref().map_or((Bytes::new(), Expiry::Absent), encode);
                let mut put = SWAP.call(&key, self.how);
                put.arg(&head[..]).arg(expiry.to_server()).arg(&value[..]).arg(expires.to_server());
                put.arg(u8::from(self.call.invalidates_copies())).arg(channel);
                put
            }
        }
    }

    /// Whether it ends a claim that this process remembers.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self.ask, Ask::Finish(_))
    }

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

    fn granted(&mut self, claims: &Claims) -> Progress {
        match (&self.call, std::mem::replace(&mut self.ask, Ask::Look)) {
            (StoreRequest::Claim(request), Ask::Set { claimed, granted, .. }) => {
                claims.remember(request.nonce, claimed);
                Progress::Done(Ok(StoreReply::Claim(granted)))
            }
            _ => Progress::MixedUp(odd_reply()),
        }
    }

    /// A claim met a value. Whatever does not depend on a lease is decided at once.
    fn met(&mut self, seen: Seen, now: Timestamp) -> Result<Progress, Unreadable> {
        if seen.bare.is_expired(now) {
            self.ask = Ask::Look;
            return Ok(Progress::Again);
        }
        let step = self.call.step(Some(&seen.bare), now);
        match step.change {
            Change::Keep if !is_busy(&step.answer) => return Ok(Progress::Read(step.answer)),
            Change::Keep | Change::Delete => self.ask = Ask::Look,
            Change::Put(record) => self.contend(seen, record, step.answer),
        }
        Ok(Progress::Again)
    }

    fn contend(&mut self, seen: Seen, record: Record, granted: StoreReply) {
        // Only a new owner's value is known before the lease is: the script fills in what it says.
        let is_new = matches!(granted, StoreReply::Claim(Claim::Granted(_)))
            && record.token > seen.bare.token;
        let grant = is_new.then_some(record);
        self.ask = Ask::Contend(Box::new(Contend { seen, grant, granted }));
    }

    /// The pure step decides what the key's state means.
    fn decide(
        &mut self,
        Standing { now, expiry }: Standing,
        value: Option<Vec<u8>>,
    ) -> Result<Progress, Unreadable> {
        let seen = value.map(|value| Seen::read(self.key(), value)).transpose()?;
        let head = seen.as_ref().map_or_else(Bytes::new, Seen::head);
        let record = seen.clone().map(|seen| seen.record(expiry)).transpose();
        let record = record.map_err(Unreadable::Value)?;
        let step = self.call.step(record.as_ref(), now);
        let put = match step.change {
            Change::Keep => {
                // Whoever is told Busy marks the record, so that they are told of its end, unless the
                // server takes no such writes now.
                let marks = is_busy(&step.answer) && self.full.is_none();
                if let Some(seen) = seen.filter(|seen| marks && !self.is_mine(seen)) {
                    let contend = Contend { seen, grant: None, granted: step.answer };
                    self.ask = Ask::Contend(Box::new(contend));
                    return Ok(Progress::Again);
                }
                return Ok(Progress::Read(step.answer));
            }
            Change::Put(record) => Some(record),
            // What has expired, Redis deletes by itself.
            Change::Delete if matches!(self.call, StoreRequest::Purge(_)) => {
                return Ok(Progress::Done(Ok(step.answer)));
            }
            Change::Delete => None,
        };
        if let (Some(full), StoreReply::Claim(Claim::Granted(_))) = (&self.full, &step.answer) {
            return Ok(Progress::Done(Err(full.clone())));
        }
        self.ask = Ask::Swap(Box::new(Swap { head, expiry, put, said: step.answer }));
        Ok(Progress::Again)
    }

    /// A live lease stood in the way.
    fn marked(&mut self, Standing { now, expiry }: Standing) -> Result<Progress, Unreadable> {
        let Ask::Contend(contend) = &self.ask else { return Ok(Progress::MixedUp(odd_reply())) };
        let record = contend.seen.clone().record(expiry).map_err(Unreadable::Value)?;
        let remaining = record.lease_until.since(now);
        Ok(Progress::Read(StoreReply::Claim(Claim::Busy { remaining })))
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

    /// The server put the outcome where the claim was.
    fn finished(&self) -> Progress {
        match &self.ask {
            Ask::Finish(_) => Progress::Done(Ok(StoreReply::Complete(Completion::Recorded))),
            _ => Progress::MixedUp(odd_reply()),
        }
    }

    /// What it was told is not believed.
    #[cold]
    pub(crate) fn forget(&self, claims: &Claims) {
        if let StoreRequest::Claim(request) = &self.call {
            claims.forget(&request.nonce);
        }
    }

    fn is_mine(&self, seen: &Seen) -> bool {
        matches!(&self.call, StoreRequest::Claim(request) if seen.bare.nonce == Some(request.nonce))
    }

    fn nonce(&self) -> &[u8] {
        match &self.call {
            StoreRequest::Claim(request) => request.nonce.as_bytes(),
            _ => &[],
        }
    }
}

/// The claim of a key that is absent, which most are.
fn first(request: &ClaimRequest, now: Timestamp) -> Ask {
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

const fn is_busy(said: &StoreReply) -> bool {
    matches!(said, StoreReply::Claim(Claim::Busy { .. }))
}

/// Nonce and token as they stand in a value.
fn pair(owner: &Owner) -> [u8; 24] {
    let mut pair = [0; 24];
    pair[..16].copy_from_slice(owner.nonce.as_bytes());
    pair[16..].copy_from_slice(&owner.token.to_be_bytes());
    pair
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
