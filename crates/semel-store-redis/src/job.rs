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
//! Renewal and completion begin with a script of their own, which does it all for the owner.

use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, Error, ErrorKind, KeyHash, OnLostOwner,
    Owner, Record, Renewal, Result, State, Timestamp, codec,
    steps::{self, Change},
};

use crate::{
    call::{Call, Said},
    error::{Trouble, odd_reply, unavailable},
    link::Reply,
    names::Names,
    reply::{Did, Told},
    script::{COMPLETE, CONTEND, How, LOOK, RENEW, SWAP},
    value::{Expiry, Seen, Unreadable, encode, encode_owned, horizon},
};

/// A call that others overtook this often is given up.
const MAX_ROUNDS: u32 = 64;

/// One call on its way.
#[derive(Debug)]
pub(crate) struct Job {
    call: Call,
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
        value: Bytes,
        horizon: u64,
        granted: Claim,
    },
    /// A claim that met a record: what to put if it may be granted, and what to say then.
    Contend {
        seen: Seen,
        grant: Option<Record>,
        granted: Said,
    },
    Renew {
        owner: Owner,
        max_run: Duration,
    },
    Complete(CompleteRequest),
    Look,
    Swap {
        head: Bytes,
        expiry: Expiry,
        put: Option<Record>,
        said: Said,
    },
}

/// What became of a job with a reply.
#[derive(Debug)]
pub(crate) enum Progress {
    Done(Result<Said>),
    /// It has something else to ask.
    Again,
    /// No reply from this connection can be trusted any more.
    Broken(Error),
}

/// Which index a record has to be in before it is written, and at which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Held(Timestamp),
    Stuck(Timestamp),
}

impl Job {
    pub(crate) fn new(call: Call, now: Timestamp) -> Self {
        let ask = match &call {
            Call::Claim(request) => first(request, now),
            Call::Renew(request) => Ask::Renew { owner: request.owner, max_run: request.max_run },
            Call::Complete(request) => Ask::Complete(request.clone()),
            Call::Release(_)
            | Call::Abandon(_)
            | Call::Resolve(_)
            | Call::Erase(_)
            | Call::Forget(_)
            | Call::Purge(_)
            | Call::Get(_) => Ask::Look,
        };
        Self { call, ask, how: How::ByHash, rounds: 0, full: None }
    }

    pub(crate) const fn key(&self) -> &KeyHash {
        self.call.key()
    }

    pub(crate) const fn is_claim(&self) -> bool {
        matches!(self.call, Call::Claim(_))
    }

    /// What it sends besides a few hundred bytes.
    pub(crate) fn outcome_bytes(&self) -> usize {
        match &self.call {
            Call::Complete(request) => request.outcome.size(),
            _ => 0,
        }
    }

    /// The command that asks it.
    pub(crate) fn command(&self, names: &Names) -> Cmd {
        let (key, channel) = (names.record(self.key()), &names.channel);
        match &self.ask {
            Ask::Set { value, horizon, .. } => {
                let mut set = Cmd::with_capacity(7, key.len() + value.len() + 32);
                set.arg("SET")
                    .arg(key)
                    .arg(&value[..])
                    .arg("NX")
                    .arg("GET")
                    .arg("PX")
                    .arg(*horizon);
                set
            }
            Ask::Contend { seen, grant, .. } => {
                let value = grant.as_ref().map(|record| encode(record).0).unwrap_or_default();
                let horizon = grant.as_ref().map_or(0, |record| horizon(&record.terms));
                let mut contend = CONTEND.call(&key, self.how);
                contend.arg(&seen.head()[..]).arg(&value[..]).arg(horizon);
                contend.arg(self.nonce());
                contend
            }
            Ask::Renew { owner, max_run } => {
                let max_run = u64::try_from(max_run.as_millis()).unwrap_or(u64::MAX);
                let mut renew = RENEW.call(&key, self.how);
                renew.arg(&pair(owner)[..]).arg(max_run);
                renew
            }
            Ask::Complete(request) => {
                let packed = codec::pack(&request.outcome);
                let success = u8::from(request.outcome.is_success());
                let mut complete = COMPLETE.call(&key, self.how);
                complete.arg(&pair(&request.owner)[..]).arg(&packed.section()[..]);
                complete.arg(if packed.compressed { 3 } else { 1 }).arg(success).arg(channel);
                complete
            }
            Ask::Look => LOOK.call(&key, self.how),
            Ask::Swap { head, expiry, put, .. } => {
                let (value, expires) = put.as_ref().map_or((Bytes::new(), Expiry::Absent), encode);
                let mut swap = SWAP.call(&key, self.how);
                swap.arg(&head[..])
                    .arg(expiry.to_server())
                    .arg(&value[..])
                    .arg(expires.to_server());
                swap.arg(u8::from(self.call.is_told_to_all())).arg(channel);
                swap
            }
        }
    }

    /// Where the record has to be found before the command may happen.
    pub(crate) fn watch(&self, now: Timestamp) -> Option<Watch> {
        let put = match &self.ask {
            Ask::Set { .. } => return self.watch_first(now),
            Ask::Contend { grant, .. } => grant.as_ref(),
            Ask::Swap { put, .. } => put.as_ref(),
            Ask::Renew { .. } | Ask::Complete(_) | Ask::Look => None,
        }?;
        match (put.state, put.terms.on_lost_owner) {
            (State::InProgress, OnLostOwner::Hold) => Some(Watch::Held(now.after(put.terms.lease))),
            (State::Unknown | State::Dead, _) => Some(Watch::Stuck(now)),
            (State::InProgress | State::Open | State::Completed | State::Erased, _) => None,
        }
    }

    fn watch_first(&self, now: Timestamp) -> Option<Watch> {
        let Call::Claim(ClaimRequest { terms, .. }) = &self.call else { return None };
        (terms.on_lost_owner == OnLostOwner::Hold).then(|| Watch::Held(now.after(terms.lease)))
    }

    /// Takes the reply to [`Job::command`]. `now` is an estimate; `told` learns the server's time.
    pub(crate) fn take(
        &mut self,
        reply: Reply,
        now: Timestamp,
        told: &mut Option<Timestamp>,
    ) -> Progress {
        self.rounds += 1;
        let progress = match reply {
            Err(trouble) => self.trouble(trouble),
            Ok(value) => {
                self.how = How::ByHash;
                match self.taken(value, now, told) {
                    Ok(progress) => progress,
                    Err(Unreadable::Value(error)) => Progress::Done(Err(error)),
                    Err(Unreadable::MixedUp(error)) => {
                        tracing::error!(%error, "redis: replies are mixed up");
                        Progress::Broken(error)
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
            Trouble::NoScript => Progress::Broken(odd_reply()),
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
    ) -> Result<Progress, Unreadable> {
        if let Ask::Set { granted, .. } = &self.ask {
            return match value {
                Value::Nil => Ok(Progress::Done(Ok(Said::Claim(granted.clone())))),
                Value::BulkString(bytes) => self.met(Seen::read(self.key(), bytes)?, now),
                _ => Ok(Progress::Broken(odd_reply())),
            };
        }
        let reply = match Told::read(value) {
            Ok(reply) => reply,
            Err(error) => return Ok(Progress::Broken(error)),
        };
        *told = Some(reply.now);
        match reply.did {
            Did::Nothing => self.decide(reply),
            Did::Marked => self.marked(reply),
            Did::All => Ok(self.done()),
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
            Change::Keep if !is_busy(&step.answer) => return Ok(Progress::Done(Ok(step.answer))),
            Change::Keep | Change::Delete => self.ask = Ask::Look,
            Change::Put(record) => self.contend(seen, record, step.answer),
        }
        Ok(Progress::Again)
    }

    fn contend(&mut self, seen: Seen, record: Record, granted: Said) {
        // Only a new owner's value is known before the lease is: the script fills in what it says.
        let is_new =
            matches!(granted, Said::Claim(Claim::Granted(_))) && record.token > seen.bare.token;
        self.ask = Ask::Contend { seen, grant: is_new.then_some(record), granted };
    }

    /// The pure step decides what the key's state means.
    fn decide(&mut self, Told { now, expiry, value, .. }: Told) -> Result<Progress, Unreadable> {
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
                    self.ask = Ask::Contend { seen, grant: None, granted: step.answer };
                    return Ok(Progress::Again);
                }
                return Ok(Progress::Done(Ok(step.answer)));
            }
            Change::Put(record) => Some(record),
            Change::Delete => None,
        };
        if let (Some(full), Said::Claim(Claim::Granted(_))) = (&self.full, &step.answer) {
            return Ok(Progress::Done(Err(full.clone())));
        }
        self.ask = Ask::Swap { head, expiry, put, said: step.answer };
        Ok(Progress::Again)
    }

    /// A live lease stood in the way.
    fn marked(&mut self, Told { now, expiry, .. }: Told) -> Result<Progress, Unreadable> {
        let Ask::Contend { seen, .. } = &self.ask else { return Ok(Progress::Broken(odd_reply())) };
        let record = seen.clone().record(expiry).map_err(Unreadable::Value)?;
        let remaining = record.lease_until.since(now);
        Ok(Progress::Done(Ok(Said::Claim(Claim::Busy { remaining }))))
    }

    /// The server did all it was asked for.
    fn done(&mut self) -> Progress {
        Progress::Done(Ok(match std::mem::replace(&mut self.ask, Ask::Look) {
            Ask::Set { granted, .. } => Said::Claim(granted),
            Ask::Contend { granted: said, .. } | Ask::Swap { said, .. } => said,
            Ask::Renew { .. } => Said::Renew(Renewal::Extended),
            Ask::Complete(_) => Said::Complete(Completion::Recorded),
            Ask::Look => return Progress::Broken(odd_reply()),
        }))
    }

    fn is_mine(&self, seen: &Seen) -> bool {
        matches!(&self.call, Call::Claim(request) if seen.bare.nonce == Some(request.nonce))
    }

    fn nonce(&self) -> &[u8] {
        match &self.call {
            Call::Claim(request) => request.nonce.as_bytes(),
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
            Ask::Set { value: encode_owned(record).0, horizon, granted: step.answer }
        }
        Change::Keep | Change::Delete => unreachable!("the claim of an absent key is granted"),
    }
}

const fn is_busy(said: &Said) -> bool {
    matches!(said, Said::Claim(Claim::Busy { .. }))
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
