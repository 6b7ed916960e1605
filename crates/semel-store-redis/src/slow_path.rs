//! The slow path: reads a record, lets the step decide, and writes with a script that compares and swaps.

use bytes::Bytes;
use redis::Cmd;
use semel_core::{
    Claim, Record, Result, Timestamp,
    steps::{Change, StoreReply, StoreRequest},
};

use crate::{
    error::unexpected_reply,
    request::{NextCommand, RedisRequest, RequestProgress},
    script::{CONTEND, SWAP, ScriptCall},
    script_reply::RedisKeyStatus,
    value::{Expiry, StoredValue, UnreadableValue, encode, encode_waited, horizon},
};

/// A claim of a key that has a record already.
#[derive(Debug)]
pub(crate) struct ContendedClaim {
    pub(crate) stored: StoredValue,
    /// The record to write if the claim may be granted.
    pub(crate) grant: Option<Record>,
    /// The reply if the script does it.
    pub(crate) reply: StoreReply,
}

/// Writes or deletes a record, if its head and its expiry are still those that were read.
#[derive(Debug)]
pub(crate) struct CompareAndSwap {
    pub(crate) head: Bytes,
    pub(crate) expiry: Expiry,
    pub(crate) put: Option<Record>,
    pub(crate) reply: StoreReply,
}

impl ContendedClaim {
    pub(crate) fn command(&self, key: &[u8], script_call: ScriptCall, nonce: &[u8]) -> Cmd {
        let Self { stored, grant, .. } = self;
        let value = grant.as_ref().map(|record| encode(record).0).unwrap_or_default();
        let horizon = grant.as_ref().map_or(0, |record| horizon(&record.terms));
        let mut claim = CONTEND.call(key, script_call);
        claim.arg(&stored.head()[..]).arg(&value[..]).arg(horizon);
        claim.arg(nonce);
        claim
    }
}

impl CompareAndSwap {
    pub(crate) fn command(
        &self,
        key: &[u8],
        script_call: ScriptCall,
        notify_always: bool,
        channel: &str,
    ) -> Cmd {
        let Self { head, expiry, put, .. } = self;
        let (value, expires) = match put {
            None => (Bytes::new(), Expiry::Absent),
            // The claimant waits for the owner. Before a purge that contests the key, callers may wait, too.
            Some(record) if record.contested => encode_waited(record.clone()),
            Some(record) => encode(record),
        };
        let mut put = SWAP.call(key, script_call);
        put.arg(&head[..]).arg(expiry.to_server()).arg(&value[..]).arg(expires.to_server());
        put.arg(u8::from(notify_always)).arg(channel);
        put
    }
}

impl RedisRequest {
    /// A first claim found a record. What does not depend on a lease is decided at once.
    pub(crate) fn claim_met_record(
        &mut self,
        stored: StoredValue,
        now: Timestamp,
    ) -> Result<RequestProgress, UnreadableValue> {
        if stored.untimed.is_expired(now) {
            self.next = NextCommand::Read;
            return Ok(RequestProgress::Continue);
        }
        let step = self.request.step(Some(&stored.untimed), now);
        match step.change {
            Change::Keep if !is_busy(&step.answer) => {
                return Ok(RequestProgress::DoneByReading(step.answer));
            }
            Change::Keep | Change::Delete => self.next = NextCommand::Read,
            Change::Put(record) => self.contend(stored, record, step.answer),
        }
        Ok(RequestProgress::Continue)
    }

    fn contend(&mut self, stored: StoredValue, record: Record, reply: StoreReply) {
        // The record of a new owner can be built without knowing the old lease: the script fills in the rest.
        let is_new = matches!(reply, StoreReply::Claim(Claim::Granted(_)))
            && record.token > stored.untimed.token;
        let grant = is_new.then_some(record);
        self.next = NextCommand::Contend(Box::new(ContendedClaim { stored, grant, reply }));
    }

    /// Lets the step decide about the record as the server has it.
    pub(crate) fn decide(
        &mut self,
        RedisKeyStatus { now, expiry }: RedisKeyStatus,
        value: Option<Vec<u8>>,
    ) -> Result<RequestProgress, UnreadableValue> {
        let stored = value.map(|value| StoredValue::read(self.key(), value)).transpose()?;
        let head = stored.as_ref().map_or_else(Bytes::new, StoredValue::head);
        let record = stored.clone().map(|stored| stored.record(expiry)).transpose();
        let record = record.map_err(UnreadableValue::Value)?;
        let step = self.request.step(record.as_ref(), now);
        let put = match step.change {
            Change::Keep => {
                // A caller that gets Busy marks the record, so that the owner publishes when it is done. A
                // full server takes no such write.
                let marks = is_busy(&step.answer) && self.full.is_none();
                if let Some(stored) = stored.filter(|stored| marks && !self.is_own_claim(stored)) {
                    let contend = ContendedClaim { stored, grant: None, reply: step.answer };
                    self.next = NextCommand::Contend(Box::new(contend));
                    return Ok(RequestProgress::Continue);
                }
                return Ok(RequestProgress::DoneByReading(step.answer));
            }
            Change::Put(record) => Some(record),
            // Redis itself deletes expired records.
            Change::Delete if matches!(self.request, StoreRequest::Purge(_)) => {
                return Ok(RequestProgress::Done(Ok(step.answer)));
            }
            Change::Delete => None,
        };
        if let (Some(full), StoreReply::Claim(Claim::Granted(_))) = (&self.full, &step.answer) {
            return Ok(RequestProgress::Done(Err(full.clone())));
        }
        self.next =
            NextCommand::Swap(Box::new(CompareAndSwap { head, expiry, put, reply: step.answer }));
        Ok(RequestProgress::Continue)
    }

    /// Another owner holds a live lease.
    pub(crate) fn busy(
        &mut self,
        RedisKeyStatus { now, expiry }: RedisKeyStatus,
    ) -> Result<RequestProgress, UnreadableValue> {
        let NextCommand::Contend(contend) = &self.next else {
            return Ok(RequestProgress::WrongReply(unexpected_reply()));
        };
        let record = contend.stored.clone().record(expiry).map_err(UnreadableValue::Value)?;
        let remaining = record.lease_until.since(now);
        Ok(RequestProgress::DoneByReading(StoreReply::Claim(Claim::Busy { remaining })))
    }

    pub(crate) fn is_own_claim(&self, stored: &StoredValue) -> bool {
        matches!(&self.request, StoreRequest::Claim(request) if stored.untimed.nonce == Some(request.nonce))
    }
}

const fn is_busy(reply: &StoreReply) -> bool {
    matches!(reply, StoreReply::Claim(Claim::Busy { .. }))
}
