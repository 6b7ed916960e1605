//! The truth about the key, kept from what was asked and answered. No field is read from the record, so
//! the ledger notices when the record says something else.

use semel_core::{OnLostOwner, State};

use crate::{
    config::{BACKOFF, Client},
    world::{Pair, World},
};

/// Lives of a record that are told apart; a world with more is not looked at.
pub(crate) const LIVES: usize = 3;

/// The truth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    /// Lives begun.
    pub(crate) begun: u8,
    lives: [Life; LIVES],
    /// `None`: there is no record, or it has expired.
    pub(crate) standing: Option<Standing>,
}

/// From the claim that makes a record until it expires, is forgotten or lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    pub(crate) on_hold: bool,
    pub(crate) cap: u8,
    /// Grants, of all and since the last reopening.
    pub(crate) grants: u8,
    pub(crate) attempts: u8,
    /// Runs since the last reopening that may have had an effect; more than two are two.
    pub(crate) effects: u8,
    pub(crate) reopened: u8,
    /// Fingerprints that were granted, and those that ran.
    pub(crate) asked: u8,
    pub(crate) ran: u8,
    pub(crate) outcome: Option<u8>,
}

/// How the key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    /// Who was granted the key last; still the owner unless `disowned`.
    pub(crate) pair: Pair,
    pub(crate) worker: u8,
    pub(crate) disowned: bool,
    /// The fingerprint that nobody has attested away.
    pub(crate) pinned: u8,
    pub(crate) granted_at: u8,
    /// When others may take over: the owner's last sign of life and its own lease, or its backoff.
    pub(crate) silent_until: u8,
    pub(crate) expires_at: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Owned,
    Abandoned,
    Released,
    Completed,
    Unknown,
    /// Out of attempts after a release: nobody's. Out of attempts otherwise: still the lost owner's.
    Dead,
    Erased,
}

impl Phase {
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

    /// T7: from here the owner may complete.
    pub(crate) const fn is_completable(self) -> bool {
        matches!(self, Self::Owned | Self::Abandoned | Self::Unknown | Self::Dead)
    }
}

impl Standing {
    pub(crate) fn is_owner(&self, pair: Pair) -> bool {
        self.pair == pair && !self.disowned
    }

    pub(crate) fn is_silent(&self, now: u8) -> bool {
        self.silent_until <= now
    }

    /// Arms the lease at `now`.
    pub(crate) fn arm(&mut self, now: u8, life: &Life, client: &Client) {
        self.lapse_at(now + client.lease, life, client);
    }

    pub(crate) fn back_off(&mut self, now: u8, life: &Life, client: &Client) {
        self.phase = Phase::Abandoned;
        self.lapse_at(now + BACKOFF, life, client);
    }

    fn lapse_at(&mut self, at: u8, life: &Life, client: &Client) {
        self.silent_until = at;
        self.expires_at = (!life.on_hold).then_some(at + client.retention);
    }

    /// Leaves the hands of its owner, to be kept until `expires_at`.
    pub(crate) fn end(&mut self, phase: Phase, expires_at: Option<u8>) {
        (self.phase, self.expires_at) = (phase, expires_at);
    }
}

impl Ledger {
    /// The life now lived, or the last one.
    pub(crate) fn life(&self) -> Life {
        self.lives[self.index()]
    }

    pub(crate) fn life_mut(&mut self) -> &mut Life {
        &mut self.lives[self.index()]
    }

    fn index(&self) -> usize {
        usize::from(self.begun).clamp(1, LIVES) - 1
    }

    pub(crate) fn life_number(&mut self, number: u8) -> &mut Life {
        &mut self.lives[usize::from(number) - 1]
    }

    pub(crate) fn begin(&mut self, client: &Client) {
        self.begun += 1;
        *self.life_mut() = Life {
            on_hold: client.on_lost_owner == OnLostOwner::Hold,
            cap: client.max_attempts,
            ..Life::default()
        };
    }

    pub(crate) fn grant(&mut self, now: u8, worker: usize, pair: Pair, client: &Client) {
        let life = self.life_mut();
        life.grants += 1;
        life.attempts += 1;
        life.asked |= mask(client.fingerprint);
        let life = *life;
        let mut standing = Standing {
            phase: Phase::Owned,
            pair,
            worker: u8::try_from(worker).unwrap_or(u8::MAX),
            disowned: false,
            pinned: mask(client.fingerprint),
            granted_at: now,
            silent_until: now,
            expires_at: None,
        };
        standing.arm(now, &life, client);
        self.standing = Some(standing);
    }

    /// An operator lets it run again, with all its attempts.
    pub(crate) fn reopen(&mut self) {
        let life = self.life_mut();
        life.reopened += 1;
        (life.attempts, life.effects) = (0, 0);
    }

    /// Lets the record expire.
    pub(crate) fn pass(&mut self, now: u8) {
        self.standing = self.standing.filter(|it| it.expires_at.is_none_or(|at| at > now));
    }

    /// Which grant the key stands at: the life, and how many grants it had.
    pub(crate) fn grant_number(&self) -> (u8, u8) {
        (self.begun, self.life().grants)
    }

    /// True when no run of this life had an effect, and none can have one any more.
    pub(crate) fn is_clean(&self, world: &World) -> bool {
        self.life().ran == 0 && world.owners().all(|(_, owning)| !owning.may_run_in(self.begun))
    }
}

/// A fingerprint in a set of fingerprints.
pub(crate) const fn mask(fingerprint: u8) -> u8 {
    1 << fingerprint
}
