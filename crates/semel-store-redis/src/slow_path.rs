//! The slow path: reads a record, lets the step decide, and writes with a script that compares and swaps.

use bytes::Bytes;
use redis::Cmd;
use semel_core::{
    Claim, Record, Result, Timestamp,
    steps::{Change, StoreReply, StoreRequest},
};

use crate::{
    error::odd_reply,
    request::{Ask, Job, Progress},
    script::{CONTEND, How, SWAP},
    script_reply::Standing,
    value::{Expiry, Seen, Unreadable, encode, horizon},
};

#[derive(Debug)]
pub(crate) struct Contend {
    pub(crate) seen: Seen,
    pub(crate) grant: Option<Record>,
    pub(crate) granted: StoreReply,
}

#[derive(Debug)]
pub(crate) struct Swap {
    pub(crate) head: Bytes,
    pub(crate) expiry: Expiry,
    pub(crate) put: Option<Record>,
    pub(crate) said: StoreReply,
}

impl Contend {
    pub(crate) fn command(&self, key: &[u8], how: How, nonce: &[u8]) -> Cmd {
        let Self { seen, grant, .. } = self;
        let value = grant.as_ref().map(|record| encode(record).0).unwrap_or_default();
        let horizon = grant.as_ref().map_or(0, |record| horizon(&record.terms));
        let mut claim = CONTEND.call(key, how);
        claim.arg(&seen.head()[..]).arg(&value[..]).arg(horizon);
        claim.arg(nonce);
        claim
    }
}

impl Swap {
    pub(crate) fn command(&self, key: &[u8], how: How, tells_all: bool, channel: &str) -> Cmd {
        let Self { head, expiry, put, .. } = self;
        let (value, expires) = put.as_ref().map_or((Bytes::new(), Expiry::Absent), encode);
        let mut put = SWAP.call(key, how);
        put.arg(&head[..]).arg(expiry.to_server()).arg(&value[..]).arg(expires.to_server());
        put.arg(u8::from(tells_all)).arg(channel);
        put
    }
}

impl Job {
    /// A claim met a value. Whatever does not depend on a lease is decided at once.
    pub(crate) fn met(&mut self, seen: Seen, now: Timestamp) -> Result<Progress, Unreadable> {
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
    pub(crate) fn decide(
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
    pub(crate) fn marked(
        &mut self,
        Standing { now, expiry }: Standing,
    ) -> Result<Progress, Unreadable> {
        let Ask::Contend(contend) = &self.ask else { return Ok(Progress::MixedUp(odd_reply())) };
        let record = contend.seen.clone().record(expiry).map_err(Unreadable::Value)?;
        let remaining = record.lease_until.since(now);
        Ok(Progress::Read(StoreReply::Claim(Claim::Busy { remaining })))
    }

    pub(crate) fn is_mine(&self, seen: &Seen) -> bool {
        matches!(&self.call, StoreRequest::Claim(request) if seen.bare.nonce == Some(request.nonce))
    }
}

const fn is_busy(said: &StoreReply) -> bool {
    matches!(said, StoreReply::Claim(Claim::Busy { .. }))
}
