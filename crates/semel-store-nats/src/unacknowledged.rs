//! A write whose acknowledgement was lost: what a later read of the key shows about it.

use std::time::{Duration, Instant};

use semel_core::{Claim, Nonce, Record, State, steps::StoreReply};

use crate::{
    clock::NatsClock,
    value::{Encoded, KeySnapshot},
};

/// After this time, the server may have deleted the record of the write, or what another request made of it.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// A write that expects a revision, and the reply to the caller if it is stored.
#[derive(Debug)]
pub(crate) struct ConditionalWrite {
    /// The revision that the key must have.
    pub(crate) revision: u64,
    pub(crate) value: Encoded,
    pub(crate) reply: StoreReply,
    pub(crate) record: Record,
    /// It was sent after this time.
    pub(crate) made_at: Instant,
}

impl ConditionalWrite {
    /// True if the key has this value. A renewal has the same bytes as the renewal before it, so the revision must
    /// differ from the one that the write expects.
    pub(crate) fn is_in(&self, snapshot: &KeySnapshot) -> bool {
        self.revision != snapshot.revision && self.value.bytes == snapshot.bytes
    }

    /// True if this write of a claim with `nonce` may have been stored and then replaced or removed by another request.
    /// Without a proof that it was never stored, this is true.
    pub(crate) fn may_have_been_replaced(&self, snapshot: &KeySnapshot, nonce: Nonce) -> bool {
        if self.revision == snapshot.revision {
            return self.revision == 0 && self.made_at.elapsed() >= SHORTEST_TTL;
        }
        if !matches!(self.reply, StoreReply::Claim(Claim::Granted(_))) {
            return !self.is_in(snapshot);
        }
        let Some(record) = &snapshot.record else { return true };
        if self.was_preceded_by(record) {
            return false;
        }
        // An operator resolved or erased a record without a nonce: its owner is unknown.
        record.nonce != Some(nonce) || record.state != State::InProgress
    }

    /// True if another claim was stored first, so that this one was refused. The same token alone is no proof: the
    /// tokens of a key that was forgotten or has expired begin again with one.
    fn was_preceded_by(&self, record: &Record) -> bool {
        let created_at = self.record.created_at;
        match self.record.token {
            // This write would have created the key, which existed before. The clock of a new leader may be a
            // little behind the one that this write was dated by.
            1 => record.created_at.after(NatsClock::MAX_STEP_BACK) < created_at,
            token => {
                let is_other = record.nonce.is_some() && record.nonce != self.record.nonce;
                is_other && record.token == token && record.created_at == created_at
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{Lease, Owner, RenewRequest, Renewal, Timestamp, steps};

    use super::*;
    use crate::{sightings::tests::snapshot, value::encode};

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const OTHER: Nonce = Nonce::from_bytes([2; 16]);

    fn claimed() -> Record {
        snapshot(1, NOW).record.expect("the key is claimed")
    }

    fn granted(record: &Record) -> StoreReply {
        let owner = Owner { key: record.key, nonce: own(), token: record.token };
        let length = record.terms.lease.to_duration();
        StoreReply::Claim(Claim::Granted(Lease { owner, attempt: 1, length, takeover: false }))
    }

    fn own() -> Nonce {
        claimed().nonce.expect("a claim has a nonce")
    }

    fn write(revision: u64, record: Record, reply: StoreReply) -> ConditionalWrite {
        ConditionalWrite {
            revision,
            value: encode(&record, NOW),
            reply,
            record,
            made_at: Instant::now(),
        }
    }

    fn snapshot_with(
        nonce: impl Into<Option<Nonce>>,
        change: impl FnOnce(&mut Record),
    ) -> KeySnapshot {
        let mut record = Record { nonce: nonce.into(), ..claimed() };
        change(&mut record);
        KeySnapshot { revision: 6, record: Some(record), ..KeySnapshot::default() }
    }

    fn earlier() -> Timestamp {
        NOW.before(NatsClock::MAX_STEP_BACK * 2)
    }

    fn renewed(record: &Record, now: Timestamp) -> (Record, Encoded) {
        let owner = Owner { key: record.key, nonce: own(), token: record.token };
        let request = RenewRequest::new(owner, Duration::from_secs(86_400));
        let steps::Change::Put(record) = steps::renew(Some(record), &request, now).change else {
            panic!("extended")
        };
        let value = encode(&record, now);
        (record, value)
    }

    #[test]
    fn a_renewal_that_was_not_stored_is_not_confused_with_the_one_before() {
        let later = |millis| NOW.after(Duration::from_millis(millis));
        let (first, stored) = renewed(&claimed(), later(5));
        let (record, value) = renewed(&first, later(10));
        assert_eq!(value.bytes, stored.bytes, "both have the same bytes");
        let write =
            ConditionalWrite { value, ..write(5, record, StoreReply::Renew(Renewal::Extended)) };
        let snapshot = |revision| KeySnapshot {
            revision,
            bytes: stored.bytes.clone(),
            ..KeySnapshot::default()
        };
        assert!(!write.is_in(&snapshot(5)), "the write expects this revision");
        assert!(write.is_in(&snapshot(6)));
    }

    #[test]
    fn a_first_claim_may_have_been_replaced_unless_another_was_first() {
        let first = write(0, claimed(), granted(&claimed()));
        let as_old = |record: &mut Record| record.created_at = earlier();
        for (snapshot, may_have_been_replaced, why) in [
            (KeySnapshot::default(), false, "the key was never written"),
            (KeySnapshot { revision: 6, ..KeySnapshot::default() }, true, "the key was forgotten"),
            (snapshot_with(own(), |_| {}), false, "the claim is stored"),
            (
                snapshot_with(own(), |it| it.state = State::Unknown),
                true,
                "another request ended its lease",
            ),
            (
                snapshot_with(own(), |it| it.state = State::Dead),
                true,
                "another request ended its lease",
            ),
            (snapshot_with(OTHER, as_old), false, "another claim was first"),
            (
                snapshot_with(OTHER, |it| it.created_at = NOW),
                true,
                "it expired, and another claim created the key again",
            ),
            (
                snapshot_with(OTHER, |it| it.token = 2),
                true,
                "another claim, perhaps a third after this one",
            ),
            (
                snapshot_with(None, |_| {}),
                true,
                "an operator resolved or erased it, and its owner is unknown",
            ),
            (
                snapshot_with(None, as_old),
                false,
                "another claim was first, and an operator decided after it",
            ),
            (
                snapshot_with(OTHER, |it| (it.created_at, it.token) = (earlier(), 2)),
                false,
                "another claim was first, and a third after it",
            ),
        ] {
            assert_eq!(
                first.may_have_been_replaced(&snapshot, own()),
                may_have_been_replaced,
                "{why}: {snapshot:?}"
            );
        }
    }

    #[test]
    fn a_later_claim_may_have_been_replaced_unless_another_has_its_token_and_creation_time() {
        let second = Record { token: 2, created_at: earlier(), ..claimed() };
        let second = write(5, second.clone(), granted(&second));
        for (created_at, token, may_have_been_replaced) in
            [(earlier(), 2, false), (earlier(), 3, true), (NOW, 2, true)]
        {
            let snapshot =
                snapshot_with(OTHER, |it| (it.created_at, it.token) = (created_at, token));
            assert_eq!(
                second.may_have_been_replaced(&snapshot, own()),
                may_have_been_replaced,
                "{snapshot:?}"
            );
        }
        let snapshot = KeySnapshot { revision: 5, ..snapshot_with(OTHER, |_| {}) };
        assert!(!second.may_have_been_replaced(&snapshot, own()), "it was not stored yet");
    }

    #[test]
    fn a_first_claim_may_have_expired_within_the_call() {
        let mut first = write(0, claimed(), granted(&claimed()));
        assert!(!first.may_have_been_replaced(&KeySnapshot::default(), own()));
        first.made_at = first.made_at.checked_sub(SHORTEST_TTL).expect("not just booted");
        assert!(first.may_have_been_replaced(&KeySnapshot::default(), own()));
    }

    #[test]
    fn a_dead_record_may_have_been_replaced_unless_the_key_has_it() {
        let dead = Record { state: State::Dead, nonce: Some(OTHER), ..claimed() };
        let write_dead = write(5, dead, StoreReply::Claim(Claim::Dead));
        let bytes = write_dead.value.bytes.clone();
        assert!(write_dead.may_have_been_replaced(
            &snapshot_with(OTHER, |it| it.state = State::Completed),
            own()
        ));
        let stored = KeySnapshot { bytes, ..snapshot_with(OTHER, |it| it.state = State::Dead) };
        assert!(
            !write_dead.may_have_been_replaced(&stored, own()),
            "the record is the same, whichever request wrote it"
        );
        assert!(!write_dead.may_have_been_replaced(&KeySnapshot { revision: 5, ..stored }, own()));
    }
}
