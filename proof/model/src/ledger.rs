//! The true history of the key, kept from requests and replies. No field is read from the record, so the ledger
//! notices when the record differs.

use semel_core::{OnLostOwner, State};

use crate::{
    config::{BACKOFF, ModelClient},
    world::{OwnerId, WorldState},
};

/// Lives of a record that the ledger can hold. States with more are not explored.
pub(crate) const LIVES: usize = 3;

/// The true history of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ModelLedger {
    /// The number of lives begun.
    pub(crate) begun: u8,
    lives: [RecordLife; LIVES],
    /// `None`: there is no record, or it has expired.
    pub(crate) status: Option<KeyStatus>,
}

/// One life of the record: from the claim that creates it until it expires, is forgotten or is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RecordLife {
    pub(crate) on_hold: bool,
    pub(crate) cap: u8,
    /// Grants, in total and since the last reopening.
    pub(crate) grants: u8,
    pub(crate) attempts: u8,
    /// Runs since the last reopening that may have had an effect, counted up to two.
    pub(crate) effects: u8,
    pub(crate) reopened: u8,
    /// Fingerprints that were granted, and fingerprints that ran, as bit sets.
    pub(crate) granted: u8,
    pub(crate) ran: u8,
    pub(crate) outcome: Option<u8>,
}

/// The current status of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyStatus {
    pub(crate) phase: LedgerPhase,
    /// The last grant. It is still the owner unless `disowned`.
    pub(crate) owner_id: OwnerId,
    pub(crate) worker: u8,
    pub(crate) disowned: bool,
    /// The fingerprint that is pinned. Zero after an attested release without effect.
    pub(crate) pinned: u8,
    pub(crate) granted_at: u8,
    /// A claim has found the owner's lease over, and the owner has not been heard since.
    pub(crate) contested: bool,
    /// The end of the owner's lease, of its backoff, or of its grace period.
    pub(crate) silent_until: u8,
    pub(crate) expires_at: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LedgerPhase {
    Owned,
    Abandoned,
    Released,
    Completed,
    Unknown,
    /// Out of attempts. After a release the key has no owner, otherwise the lost owner may still complete.
    Dead,
    Erased,
}

impl LedgerPhase {
    pub(crate) const fn state(self) -> State {
        match self {
            Self::Owned | Self::Abandoned => State::InProgress,
            Self::Released => State::Open,
            Self::Completed => State::Completed,
            Self::Unknown => State::Unknown,
            Self::Dead => State::Dead,
            Self::Erased => State::Erased,
        }
    }

    pub(crate) const fn is_in_progress(self) -> bool {
        matches!(self, Self::Owned | Self::Abandoned)
    }

    /// T7: in this phase the owner may complete.
    pub(crate) const fn is_completable(self) -> bool {
        matches!(self, Self::Owned | Self::Abandoned | Self::Unknown | Self::Dead)
    }
}

impl KeyStatus {
    pub(crate) fn is_owner(&self, owner_id: OwnerId) -> bool {
        self.owner_id == owner_id && !self.disowned
    }

    pub(crate) fn is_silent(&self, now: u8) -> bool {
        self.silent_until <= now
    }

    /// Other claims may take over: the owner was not heard in its lease, nor in the grace period after that.
    pub(crate) fn is_lost(&self, now: u8) -> bool {
        let is_ended = self.contested || self.phase == LedgerPhase::Abandoned;
        is_ended && self.is_silent(now)
    }

    /// Starts the grace period at `now`.
    pub(crate) fn contest(&mut self, now: u8, life: &RecordLife, client: &ModelClient) {
        self.contested = true;
        self.lapse_at(now + (client.lease / 3).max(1), life, client);
    }

    /// Starts the lease at `now`.
    pub(crate) fn arm(&mut self, now: u8, life: &RecordLife, client: &ModelClient) {
        self.contested = false;
        self.lapse_at(now + client.lease, life, client);
    }

    pub(crate) fn back_off(&mut self, now: u8, life: &RecordLife, client: &ModelClient) {
        (self.phase, self.contested) = (LedgerPhase::Abandoned, false);
        self.lapse_at(now + BACKOFF, life, client);
    }

    fn lapse_at(&mut self, at: u8, life: &RecordLife, client: &ModelClient) {
        self.silent_until = at;
        self.expires_at = (!life.on_hold).then_some(at + client.retention);
    }

    /// Ends the owner's claim. The record is kept until `expires_at`.
    pub(crate) fn end(&mut self, phase: LedgerPhase, expires_at: Option<u8>) {
        (self.phase, self.contested, self.expires_at) = (phase, false, expires_at);
    }
}

impl ModelLedger {
    /// The current life, or the last one.
    pub(crate) fn life(&self) -> RecordLife {
        self.lives[self.index()]
    }

    pub(crate) fn life_mut(&mut self) -> &mut RecordLife {
        &mut self.lives[self.index()]
    }

    fn index(&self) -> usize {
        usize::from(self.begun).clamp(1, LIVES) - 1
    }

    pub(crate) fn life_number(&mut self, number: u8) -> &mut RecordLife {
        &mut self.lives[usize::from(number) - 1]
    }

    pub(crate) fn begin(&mut self, client: &ModelClient) {
        self.begun += 1;
        *self.life_mut() = RecordLife {
            on_hold: client.on_lost_owner == OnLostOwner::Hold,
            cap: client.max_attempts,
            ..RecordLife::default()
        };
    }

    pub(crate) fn grant(
        &mut self,
        now: u8,
        worker: usize,
        owner_id: OwnerId,
        client: &ModelClient,
    ) {
        let life = self.life_mut();
        life.grants += 1;
        life.attempts += 1;
        life.granted |= mask(client.fingerprint);
        let life = *life;
        let mut status = KeyStatus {
            phase: LedgerPhase::Owned,
            owner_id,
            worker: u8::try_from(worker).unwrap_or(u8::MAX),
            disowned: false,
            pinned: mask(client.fingerprint),
            granted_at: now,
            contested: false,
            silent_until: now,
            expires_at: None,
        };
        status.arm(now, &life, client);
        self.status = Some(status);
    }

    /// An operator reopens the key, with all its attempts.
    pub(crate) fn reopen(&mut self) {
        let life = self.life_mut();
        life.reopened += 1;
        (life.attempts, life.effects) = (0, 0);
    }

    /// Drops the status when the record has expired.
    pub(crate) fn pass(&mut self, now: u8) {
        self.status = self.status.filter(|it| it.expires_at.is_none_or(|at| at > now));
    }

    /// The number of the life, and of its last grant.
    pub(crate) fn grant_number(&self) -> (u8, u8) {
        (self.begun, self.life().grants)
    }

    /// True when no run of this life had an effect, and none can have one any more.
    pub(crate) fn is_clean(&self, world: &WorldState) -> bool {
        self.life().ran == 0 && world.owners().all(|(_, owning)| !owning.may_run_in(self.begun))
    }
}

/// The bit of a fingerprint in a set of fingerprints.
pub(crate) const fn mask(fingerprint: u8) -> u8 {
    1 << fingerprint
}
