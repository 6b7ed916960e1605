//! The election of the process that does the maintenance, and statistics. The leader's term is a key in the bucket;
//! another process takes it over by the rule for leases, see `sightings.rs`.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use semel_core::{Result, State, Stats, steps::StoreRequest};
use semel_remote::readable_record;

use crate::{
    bucket_client::{BucketClient, BucketWrite, Via},
    error::RequestError,
    jetstream_api::StoredMessage,
    list,
    purge::PAGE,
    sightings::takeover_delay,
    store::NatsStoreInner,
    value::Encoded,
};

/// The longest term of a leader: a year.
const MAX_TERM: u64 = 365 * 86_400_000;

/// This store's part in the election.
#[derive(Debug)]
pub(crate) struct LeaderElection {
    id: [u8; 16],
    /// The revision of another process's term, and since when this process has seen it.
    other_term: Mutex<Option<(u64, Instant)>>,
}

impl LeaderElection {
    pub(crate) fn new() -> Self {
        Self { id: rand::random(), other_term: Mutex::default() }
    }

    /// True when this store leads for `term` from now on.
    pub(crate) async fn lead(&self, bucket: &BucketClient, term: Duration) -> Result<bool> {
        let last = bucket
            .last(&bucket.names.leader, Via::Background)
            .await
            .map_err(RequestError::into_error)?;
        let revision = last.as_ref().map_or(0, |message| message.revision);
        if !self.may_lead(last.as_ref()) {
            return Ok(false);
        }
        let millis = u64::try_from(term.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_TERM);
        let mut value = BytesMut::with_capacity(24);
        value.put_slice(&self.id);
        value.put_u64(millis);
        let value = Encoded { bytes: value.freeze(), ttl: Some(millis.div_ceil(1000)) };
        let (leader, put) = (bucket.names.leader.clone(), BucketWrite::Value(&value));
        match bucket.put(leader, Some(revision), put, Via::Background).await {
            Ok(_) => Ok(true),
            Err(RequestError::Conflict) => Ok(false),
            Err(error) => Err(error.into_error()),
        }
    }

    /// True if there is no leader, this store is the leader, or the leader's term has ended.
    fn may_lead(&self, last: Option<&StoredMessage>) -> bool {
        let Some(StoredMessage { revision, value: Some(value), .. }) = last else { return true };
        let Some((id, term)) = leader(value) else { return true };
        if id == self.id {
            return true;
        }
        let mut other_term = self.other_term.lock();
        match *other_term {
            Some((seen, since)) if seen == *revision => since.elapsed() >= takeover_delay(term),
            _ => {
                *other_term = Some((*revision, Instant::now()));
                false
            }
        }
    }
}

fn leader(value: &Bytes) -> Option<([u8; 16], Duration)> {
    let (id, term) = value.split_first_chunk::<16>()?;
    Some((*id, Duration::from_millis(u64::from_be_bytes(term.try_into().ok()?))))
}

/// Counts records by their subjects, and Unknown and Dead keys by the index.
pub(crate) async fn stats(inner: &NatsStoreInner) -> Result<Stats> {
    let names = &inner.bucket.names;
    let records = list::keys(inner, &names.all_records()).await?.len();
    let mut stats =
        Stats { records: u64::try_from(records).unwrap_or(u64::MAX), ..Stats::default() };
    let stuck = list::keys(inner, &names.all_index_entries()).await?;
    for page in stuck.chunks(PAGE) {
        for reply in inner.call_all(page.iter().copied().map(StoreRequest::Get).collect()).await {
            match readable_record("nats", reply)?.map(|record| record.state) {
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

    fn term(id: [u8; 16], revision: u64, millis: u64) -> StoredMessage {
        let value = Some([&id[..], &millis.to_be_bytes()].concat().into());
        StoredMessage { revision, at: Timestamp::default(), value, mark: Bytes::new() }
    }

    #[test]
    fn another_process_leads_until_its_term_has_ended() {
        let election = LeaderElection::new();
        assert!(election.may_lead(None));
        assert!(election.may_lead(Some(&term(election.id, 1, 60_000))));
        assert!(!election.may_lead(Some(&term([1; 16], 2, 20))));
        std::thread::sleep(Duration::from_millis(22));
        assert!(election.may_lead(Some(&term([1; 16], 2, 20))));
        assert!(!election.may_lead(Some(&term([1; 16], 3, 20))), "it renewed its term");
    }
}
