//! What became of a write that got no answer, as far as the key tells it later.

use std::time::{Duration, Instant};

use semel_core::{Claim, Nonce, Record, State, steps::StoreReply};

use crate::{
    clock::ServerClock,
    value::{Encoded, Seen},
};

/// What was written may be gone without a trace after this: it, or what others made of it since.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// A write, and what to say if it was taken.
#[derive(Debug)]
pub(crate) struct Write {
    /// What the key has to be still.
    pub(crate) revision: u64,
    pub(crate) value: Encoded,
    pub(crate) said: StoreReply,
    pub(crate) record: Record,
    /// It was sent after this.
    pub(crate) made_at: Instant,
}

impl Write {
    /// Whether this is what stands there. A renewal looks like the one before it, which it has to replace.
    pub(crate) fn is_in(&self, seen: &Seen) -> bool {
        self.revision != seen.revision && self.value.bytes == seen.bytes
    }

    /// Whether this may have been there and was ended by others, if a claim of `nonce` wrote it. What is no
    /// proof that it never was there counts as if it had been.
    pub(crate) fn may_be_before(&self, seen: &Seen, nonce: Nonce) -> bool {
        if self.revision == seen.revision {
            return self.revision == 0 && self.made_at.elapsed() >= SHORTEST_TTL;
        }
        if !matches!(self.said, StoreReply::Claim(Claim::Granted(_))) {
            return !self.is_in(seen);
        }
        let Some(record) = &seen.record else { return true };
        if self.is_too_late_for(record) {
            return false;
        }
        // Without a nonce: an operator took it from somebody.
        record.nonce != Some(nonce) || record.state != State::InProgress
    }

    /// Whether another was before it. The same token alone is no proof: a key that was forgotten, or has
    /// expired, begins again with one.
    fn is_too_late_for(&self, record: &Record) -> bool {
        let made_at = self.record.created_at;
        match self.record.token {
            // It would have begun the key, which had begun by then. A new leader's clock may be a little behind
            // the one that this was dated by.
            1 => record.created_at.after(ServerClock::STEP) < made_at,
            token => {
                let is_other = record.nonce.is_some() && record.nonce != self.record.nonce;
                is_other && record.token == token && record.created_at == made_at
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{Lease, Owner, RenewRequest, Renewal, Timestamp, steps};

    use super::*;
    use crate::{sightings::tests::seen, value::encode};

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const OTHER: Nonce = Nonce::from_bytes([2; 16]);

    fn claimed() -> Record {
        seen(1, NOW).record.expect("it is there")
    }

    fn granted(record: &Record) -> StoreReply {
        let owner = Owner { key: record.key, nonce: own(), token: record.token };
        let length = record.terms.lease.to_duration();
        StoreReply::Claim(Claim::Granted(Lease { owner, attempt: 1, length, takeover: false }))
    }

    fn own() -> Nonce {
        claimed().nonce.expect("it is owned")
    }

    fn write(revision: u64, record: Record, said: StoreReply) -> Write {
        Write { revision, value: encode(&record, NOW), said, record, made_at: Instant::now() }
    }

    fn stands(nonce: impl Into<Option<Nonce>>, change: impl FnOnce(&mut Record)) -> Seen {
        let mut record = Record { nonce: nonce.into(), ..claimed() };
        change(&mut record);
        Seen { revision: 6, record: Some(record), ..Seen::default() }
    }

    fn earlier() -> Timestamp {
        NOW.before(ServerClock::STEP * 2)
    }

    fn renewed(record: &Record, now: Timestamp) -> (Record, Encoded) {
        let owner = Owner { key: record.key, nonce: own(), token: record.token };
        let request = RenewRequest { owner, max_run: Duration::from_secs(86_400) };
        let steps::Change::Put(record) = steps::renew(Some(record), &request, now).change else {
            panic!("extended")
        };
        let value = encode(&record, now);
        (record, value)
    }

    #[test]
    fn a_renewal_that_was_not_taken_is_not_seen_in_the_one_before() {
        let later = |millis| NOW.after(Duration::from_millis(millis));
        let (first, stands) = renewed(&claimed(), later(5));
        let (record, value) = renewed(&first, later(10));
        assert_eq!(value.bytes, stands.bytes, "they look alike");
        let write = Write { value, ..write(5, record, StoreReply::Renew(Renewal::Extended)) };
        let seen = |revision| Seen { revision, bytes: stands.bytes.clone(), ..Seen::default() };
        assert!(!write.is_in(&seen(5)), "that is what it had to replace");
        assert!(write.is_in(&seen(6)));
    }

    #[test]
    fn a_first_claim_may_have_been_ended_unless_another_was_there_all_along() {
        let first = write(0, claimed(), granted(&claimed()));
        let as_old = |record: &mut Record| record.created_at = earlier();
        for (seen, may_be_before, why) in [
            (Seen::default(), false, "nobody wrote"),
            (Seen { revision: 6, ..Seen::default() }, true, "a forgetting"),
            (stands(own(), |_| {}), false, "it is there"),
            (stands(own(), |it| it.state = State::Unknown), true, "its lease was ended"),
            (stands(own(), |it| it.state = State::Dead), true, "its lease was ended"),
            (stands(OTHER, as_old), false, "another was first"),
            (stands(OTHER, |it| it.created_at = NOW), true, "it expired, and another began anew"),
            (stands(OTHER, |it| it.token = 2), true, "another, or a third after this one"),
            (stands(None, |_| {}), true, "resolved or erased, whoever had it"),
            (stands(None, as_old), false, "another was first, and an operator after it"),
            (
                stands(OTHER, |it| (it.created_at, it.token) = (earlier(), 2)),
                false,
                "another was first, and a third after it",
            ),
        ] {
            assert_eq!(first.may_be_before(&seen, own()), may_be_before, "{why}: {seen:?}");
        }
    }

    #[test]
    fn a_later_claim_may_have_been_ended_unless_another_has_its_token_in_the_same_life() {
        let second = Record { token: 2, created_at: earlier(), ..claimed() };
        let second = write(5, second.clone(), granted(&second));
        for (created_at, token, may_be_before) in
            [(earlier(), 2, false), (earlier(), 3, true), (NOW, 2, true)]
        {
            let seen = stands(OTHER, |it| (it.created_at, it.token) = (created_at, token));
            assert_eq!(second.may_be_before(&seen, own()), may_be_before, "{seen:?}");
        }
        let seen = Seen { revision: 5, ..stands(OTHER, |_| {}) };
        assert!(!second.may_be_before(&seen, own()), "it was not taken yet");
    }

    #[test]
    fn a_first_claim_may_have_expired_within_the_call() {
        let mut first = write(0, claimed(), granted(&claimed()));
        assert!(!first.may_be_before(&Seen::default(), own()));
        first.made_at = first.made_at.checked_sub(SHORTEST_TTL).expect("not just booted");
        assert!(first.may_be_before(&Seen::default(), own()));
    }

    #[test]
    fn a_death_may_have_been_ended_unless_it_stands_there() {
        let dead = Record { state: State::Dead, nonce: Some(OTHER), ..claimed() };
        let death = write(5, dead, StoreReply::Claim(Claim::Dead));
        let bytes = death.value.bytes.clone();
        assert!(death.may_be_before(&stands(OTHER, |it| it.state = State::Completed), own()));
        let stands = Seen { bytes, ..stands(OTHER, |it| it.state = State::Dead) };
        assert!(!death.may_be_before(&stands, own()), "it says the same, whoever wrote it");
        assert!(!death.may_be_before(&Seen { revision: 5, ..stands }, own()));
    }
}
