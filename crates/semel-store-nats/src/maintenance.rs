//! Who does the chores of all: a key of its own, taken over by the rule that leases go by.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use semel_core::{Result, State, Stats, steps::StoreRequest};
use semel_remote::readable_record;

use crate::{
    bucket_client::{Link, Over, Put},
    error::Trouble,
    jetstream_api::Message,
    list,
    purge::PAGE,
    sightings::long_enough,
    store::Inner,
    value::Encoded,
};

/// A leader that asks for more leads for a year.
const MAX_TERM: u64 = 365 * 86_400_000;

/// One who wants to lead.
#[derive(Debug)]
pub(crate) struct Candidate {
    id: [u8; 16],
    /// The revision of another's term, and since when this process has seen it.
    seen: Mutex<Option<(u64, Instant)>>,
}

impl Candidate {
    pub(crate) fn new() -> Self {
        Self { id: rand::random(), seen: Mutex::default() }
    }

    /// True when this store leads for `term` from now on.
    pub(crate) async fn lead(&self, link: &Link, term: Duration) -> Result<bool> {
        let last = link.last(&link.names.leader, Over::Own).await.map_err(Trouble::into_error)?;
        let revision = last.as_ref().map_or(0, |message| message.revision);
        if !self.may_lead(last.as_ref()) {
            return Ok(false);
        }
        let millis = u64::try_from(term.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_TERM);
        let mut value = BytesMut::with_capacity(24);
        value.put_slice(&self.id);
        value.put_u64(millis);
        let value = Encoded { bytes: value.freeze(), ttl: Some(millis.div_ceil(1000)) };
        let (leader, put) = (link.names.leader.clone(), Put::Value(&value));
        match link.put(leader, Some(revision), put, Over::Own).await {
            Ok(_) => Ok(true),
            Err(Trouble::Conflict) => Ok(false),
            Err(trouble) => Err(trouble.into_error()),
        }
    }

    /// Nobody leads, this store does, or the leader's term was seen to be over.
    fn may_lead(&self, last: Option<&Message>) -> bool {
        let Some(Message { revision, value: Some(value), .. }) = last else { return true };
        let Some((id, term)) = leader(value) else { return true };
        if id == self.id {
            return true;
        }
        let mut seen = self.seen.lock();
        match *seen {
            Some((known, since)) if known == *revision => since.elapsed() >= long_enough(term),
            _ => {
                *seen = Some((*revision, Instant::now()));
                false
            }
        }
    }
}

fn leader(value: &Bytes) -> Option<([u8; 16], Duration)> {
    let (id, term) = value.split_first_chunk::<16>()?;
    Some((*id, Duration::from_millis(u64::from_be_bytes(term.try_into().ok()?))))
}

/// Counts records by their subjects, and stuck keys by the index.
pub(crate) async fn stats(inner: &Inner) -> Result<Stats> {
    let names = &inner.link.names;
    let records = list::keys(inner, &names.all_records()).await?.len();
    let mut stats =
        Stats { records: u64::try_from(records).unwrap_or(u64::MAX), ..Stats::default() };
    let stuck = list::keys(inner, &names.all_watched()).await?;
    for some in stuck.chunks(PAGE) {
        for answer in inner.call_all(some.iter().copied().map(StoreRequest::Get).collect()).await {
            match readable_record("nats", answer)?.map(|record| record.state) {
                Some(State::Unknown) => stats.unknown += 1,
                Some(State::Dead) => stats.dead += 1,
                Some(State::Open | State::InProgress | State::Completed | State::Erased) | None => {
                }
            }
        }
    }
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use semel_core::Timestamp;

    use super::*;

    fn term(id: [u8; 16], revision: u64, millis: u64) -> Message {
        let value = Some([&id[..], &millis.to_be_bytes()].concat().into());
        Message { revision, at: Timestamp::default(), value, mark: Bytes::new() }
    }

    #[test]
    fn another_leads_until_its_term_was_seen_to_be_over() {
        let candidate = Candidate::new();
        assert!(candidate.may_lead(None));
        assert!(candidate.may_lead(Some(&term(candidate.id, 1, 60_000))));
        assert!(!candidate.may_lead(Some(&term([1; 16], 2, 20))));
        std::thread::sleep(Duration::from_millis(22));
        assert!(candidate.may_lead(Some(&term([1; 16], 2, 20))));
        assert!(!candidate.may_lead(Some(&term([1; 16], 3, 20))), "it asked again in time");
    }
}
