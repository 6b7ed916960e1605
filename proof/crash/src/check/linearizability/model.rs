//! A model of one key: its states, and the replies and states that each step allows. It is written from the
//! protocol's table, not from its code. A lease or a retention may end at any time here; I3, I6 and I7 check times.

use crate::{
    check::key_history::HistoryCall,
    event::{Detail, Hex, Op, ReplyKind},
    key::KeyClass,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyState {
    phase: KeyPhase,
    /// The nonce and the token of the owner.
    nonce: Hex,
    token: u64,
    pin: Option<u8>,
    /// The fingerprint may no longer be pinned.
    pin_may_be_off: bool,
    abandoned: bool,
    digest: Option<Hex>,
    front: FrontCopy,
}

/// The copy of a forgotten or erased record that may be left in the front of an arbiter: until a removal has been
/// acknowledged, the copy may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FrontCopy {
    NoFront,
    Empty,
    Leftover { digest: Option<Hex>, pin: Option<u8> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeyPhase {
    Absent,
    Open,
    Owned,
    Completed,
    Unknown,
    Dead,
    Erased,
}

/// Stands for every nonce that occurs in one open claim only. Two such nonces are never equal.
pub(super) const ANONYMOUS: Hex = Hex(u64::MAX);

/// What holds for a key while a call is pending.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallConditions {
    pub(super) class: KeyClass,
    /// The call may find the record expired although other calls do not.
    pub(super) may_see_expired: bool,
}

/// A reply with its token and digest, and the state after it.
type PossibleStep = (ReplyKind, Option<u64>, Option<Hex>, KeyState);

/// True when the reply of a call says that it changed nothing.
pub(super) fn changes_nothing(call: &HistoryCall<'_>) -> bool {
    let Some(answer) = call.reply() else { return false };
    match call.op() {
        Op::Renew | Op::Get => true,
        Op::Claim => matches!(
            answer,
            ReplyKind::Busy
                | ReplyKind::Mismatch
                | ReplyKind::Replay
                | ReplyKind::Released
                | ReplyKind::Gone
        ),
        Op::Complete | Op::Release | Op::Abandon => {
            matches!(answer, ReplyKind::Superseded | ReplyKind::Missing)
        }
        Op::Forget | Op::Erase => matches!(answer, ReplyKind::Missing | ReplyKind::Refused),
        Op::Run | Op::Purge | Op::Ready | Op::Point | Op::Done | Op::Dump => false,
        Op::Exit | Op::Fault => false,
    }
}

/// True when the step gives this reply.
fn fits((answer, token, digest, _): &PossibleStep, reply: &Detail) -> bool {
    reply.reply == Some(*answer)
        && token.is_none_or(|token| reply.token == Some(token))
        && digest.is_none_or(|digest| reply.digest == Some(digest))
}

impl KeyState {
    /// The state of a key that was never claimed. `has_front` when the store is an arbiter.
    pub(super) const fn start(has_front: bool) -> Self {
        Self {
            front: if has_front { FrontCopy::Empty } else { FrontCopy::NoFront },
            ..Self::ABSENT
        }
    }

    const ABSENT: Self = Self {
        phase: KeyPhase::Absent,
        nonce: Hex(0),
        token: 0,
        pin: None,
        pin_may_be_off: false,
        abandoned: false,
        digest: None,
        front: FrontCopy::NoFront,
    };

    /// The states after `call` with `nonce` that agree with its reply, if it has one.
    pub(super) fn after(
        &self,
        call: &HistoryCall<'_>,
        nonce: Hex,
        conditions: CallConditions,
    ) -> Vec<Self> {
        let step = |state: Self| state.step(call, nonce, conditions.class);
        let possible = self.after_time(conditions.class).into_iter().flat_map(step);
        let possible = possible.chain(self.seen_expired(call, nonce, conditions));
        let reply = call.reply_event().map(|end| &end.detail);
        let possible = possible.filter(|possible| reply.is_none_or(|reply| fits(possible, reply)));
        possible.map(|(_, _, _, state)| state).collect()
    }

    /// True when `call` changes nothing and its reply is possible in this state.
    pub(super) fn is_unchanged_by(
        &self,
        call: &HistoryCall<'_>,
        conditions: CallConditions,
    ) -> bool {
        let Some(reply) = call.reply_event().filter(|_| changes_nothing(call)) else {
            return false;
        };
        let nonce = call.nonce().unwrap_or(Hex(0));
        let mut possible = self.step(call, nonce, conditions.class);
        possible.extend(self.seen_expired(call, nonce, conditions));
        possible.iter().any(|possible| fits(possible, &reply.detail))
    }

    /// The replies of a call that sees the record as expired and changes nothing, although other calls still see it.
    fn seen_expired(
        &self,
        call: &HistoryCall<'_>,
        nonce: Hex,
        conditions: CallConditions,
    ) -> Vec<PossibleStep> {
        if conditions.class != KeyClass::Brief || !conditions.may_see_expired {
            return Vec::new();
        }
        let replies = self.absent().step(call, nonce, conditions.class).into_iter();
        let replies = replies.filter(|(answer, ..)| {
            matches!(answer, ReplyKind::Missing | ReplyKind::Absent | ReplyKind::Lost)
        });
        replies.map(|(answer, token, digest, _)| (answer, token, digest, self.clone())).collect()
    }

    /// The states that this state can become as time passes.
    fn after_time(&self, class: KeyClass) -> Vec<Self> {
        let mut states = vec![self.clone()];
        if class == KeyClass::Brief && self.phase != KeyPhase::Absent {
            states.push(self.absent());
        }
        if class == KeyClass::Hold && self.phase == KeyPhase::Owned {
            states.push(self.to(KeyPhase::Unknown));
        }
        states
    }

    fn absent(&self) -> Self {
        Self { front: self.front, ..Self::ABSENT }
    }

    fn to(&self, phase: KeyPhase) -> Self {
        Self { phase, ..self.clone() }
    }

    fn step(&self, call: &HistoryCall<'_>, nonce: Hex, class: KeyClass) -> Vec<PossibleStep> {
        let request = &call.begin.detail;
        let own = (nonce, request.token) == (self.nonce, Some(self.token));
        match call.op() {
            Op::Claim => self.claim(nonce, request.fingerprint, class),
            Op::Renew => self.renew(own),
            Op::Complete => self.complete(own, request.digest),
            Op::Release => self.release(own, class),
            Op::Abandon => self.abandon(own, class),
            Op::Get => vec![self.as_read()],
            Op::Forget => self.removed(call, Self::forget),
            Op::Erase => self.removed(call, Self::erase),
            Op::Run | Op::Purge | Op::Ready | Op::Point | Op::Done | Op::Dump => Vec::new(),
            Op::Exit | Op::Fault => Vec::new(),
        }
    }

    fn answer(&self, answer: ReplyKind) -> PossibleStep {
        (answer, None, None, self.clone())
    }

    fn claim(&self, nonce: Hex, payload: Option<u8>, class: KeyClass) -> Vec<PossibleStep> {
        let other = self.pin.is_some() && self.pin != payload;
        let mut possible = Vec::new();
        if let FrontCopy::Leftover { digest, pin } = self.front
            && pin == payload
        {
            possible.push((ReplyKind::Replay, None, digest, self.clone()));
        }
        if other {
            possible.push(self.answer(ReplyKind::Mismatch));
        }
        if !other || self.pin_may_be_off {
            possible.extend(self.claim_matching(nonce, payload, class));
        }
        possible
    }

    fn claim_matching(
        &self,
        nonce: Hex,
        payload: Option<u8>,
        class: KeyClass,
    ) -> Vec<PossibleStep> {
        let mine = nonce == self.nonce && nonce != ANONYMOUS;
        let capped = class == KeyClass::Capped && self.token >= u64::from(KeyClass::CAP);
        let granted = || {
            let token = self.token + 1;
            let (phase, pin) = (KeyPhase::Owned, payload);
            let state = Self { phase, nonce, token, pin, ..self.absent() };
            (ReplyKind::Granted, Some(token), None, state)
        };
        let dead = |nonce| (ReplyKind::Dead, None, None, Self { nonce, ..self.to(KeyPhase::Dead) });
        match self.phase {
            KeyPhase::Absent => vec![granted()],
            KeyPhase::Open if mine => vec![self.answer(ReplyKind::Released)],
            KeyPhase::Open if capped => vec![dead(Hex(0))],
            KeyPhase::Open => vec![granted()],
            KeyPhase::Owned if mine && self.abandoned => vec![self.answer(ReplyKind::Busy)],
            KeyPhase::Owned if mine => {
                vec![(ReplyKind::Granted, Some(self.token), None, self.clone())]
            }
            KeyPhase::Owned => {
                let lapsed = match class {
                    KeyClass::Hold => (ReplyKind::Unknown, None, None, self.to(KeyPhase::Unknown)),
                    _ if capped => dead(self.nonce),
                    _ => granted(),
                };
                vec![self.answer(ReplyKind::Busy), lapsed]
            }
            KeyPhase::Completed => vec![(ReplyKind::Replay, None, self.digest, self.clone())],
            KeyPhase::Unknown => vec![self.answer(ReplyKind::Unknown)],
            KeyPhase::Dead => vec![self.answer(ReplyKind::Dead)],
            KeyPhase::Erased => vec![self.answer(ReplyKind::Gone)],
        }
    }

    fn renew(&self, own: bool) -> Vec<PossibleStep> {
        let mut possible = vec![self.answer(ReplyKind::Lost)];
        if own && self.phase == KeyPhase::Owned && !self.abandoned {
            possible.push(self.answer(ReplyKind::Extended));
        }
        possible
    }

    fn complete(&self, own: bool, digest: Option<Hex>) -> Vec<PossibleStep> {
        vec![match self.phase {
            KeyPhase::Absent => self.answer(ReplyKind::Missing),
            KeyPhase::Owned | KeyPhase::Unknown | KeyPhase::Dead if own => {
                (ReplyKind::Recorded, None, None, Self { digest, ..self.to(KeyPhase::Completed) })
            }
            KeyPhase::Completed if own => self.answer(ReplyKind::Recorded),
            _ => self.answer(ReplyKind::Superseded),
        }]
    }

    /// The history does not contain whether the owner attested "no effect", so both replies are possible.
    fn release(&self, own: bool, class: KeyClass) -> Vec<PossibleStep> {
        let open = || {
            let state = Self { pin_may_be_off: true, abandoned: false, ..self.to(KeyPhase::Open) };
            (ReplyKind::Open, None, None, state)
        };
        match self.phase {
            KeyPhase::Absent => vec![self.answer(ReplyKind::Missing)],
            KeyPhase::Owned if own && class == KeyClass::Hold => {
                vec![open(), (ReplyKind::Unknown, None, None, self.to(KeyPhase::Unknown))]
            }
            KeyPhase::Owned if own => vec![open()],
            KeyPhase::Unknown if own => vec![open(), self.answer(ReplyKind::Superseded)],
            _ => vec![self.answer(ReplyKind::Superseded)],
        }
    }

    fn abandon(&self, own: bool, class: KeyClass) -> Vec<PossibleStep> {
        vec![match self.phase {
            KeyPhase::Absent => self.answer(ReplyKind::Missing),
            KeyPhase::Owned if own && class == KeyClass::Hold => {
                (ReplyKind::Unknown, None, None, self.to(KeyPhase::Unknown))
            }
            KeyPhase::Owned if own => {
                (ReplyKind::Lapsing, None, None, Self { abandoned: true, ..self.clone() })
            }
            _ => self.answer(ReplyKind::Superseded),
        }]
    }

    /// An acknowledged removal removes the copy in the front as well. One without a reply may have left it.
    fn removed(
        &self,
        call: &HistoryCall<'_>,
        remove: fn(&Self) -> PossibleStep,
    ) -> Vec<PossibleStep> {
        let (answer, token, digest, state) = remove(self);
        let own = FrontCopy::Leftover { digest: self.digest, pin: self.pin };
        let is_done = call.reply_event().is_some() && answer != ReplyKind::Refused;
        // If two removals may have left a copy, either copy may be there.
        let left = match (self.front, self.phase) {
            (FrontCopy::NoFront, _) => return vec![(answer, token, digest, state)],
            (FrontCopy::Empty, KeyPhase::Completed) => vec![own],
            (FrontCopy::Leftover { .. }, KeyPhase::Completed) => vec![self.front, own],
            (front, _) => vec![front],
        };
        let fronts = if is_done { &[FrontCopy::Empty][..] } else { &left };
        let leaves =
            |front: &FrontCopy| (answer, token, digest, Self { front: *front, ..state.clone() });
        let mut possible: Vec<PossibleStep> = fronts.iter().map(leaves).collect();
        // If only the copy is left, forgetting the key removes the copy and replies Forgotten.
        if call.op() == Op::Forget && answer == ReplyKind::Missing && left != [FrontCopy::Empty] {
            possible.extend(
                possible
                    .clone()
                    .into_iter()
                    .map(|(_, token, digest, state)| (ReplyKind::Forgotten, token, digest, state)),
            );
        }
        possible
    }

    fn forget(&self) -> PossibleStep {
        match self.phase {
            KeyPhase::Absent => self.answer(ReplyKind::Missing),
            KeyPhase::Open | KeyPhase::Completed | KeyPhase::Dead => {
                (ReplyKind::Forgotten, None, None, self.absent())
            }
            KeyPhase::Owned | KeyPhase::Unknown | KeyPhase::Erased => {
                self.answer(ReplyKind::Refused)
            }
        }
    }

    /// The tombstone keeps the token, so that an owner that still runs is superseded.
    fn erase(&self) -> PossibleStep {
        if self.phase == KeyPhase::Absent {
            return self.answer(ReplyKind::Missing);
        }
        let erased = Self { phase: KeyPhase::Erased, token: self.token, ..self.absent() };
        (ReplyKind::Erased, None, None, erased)
    }

    fn as_read(&self) -> PossibleStep {
        let answer = match self.phase {
            KeyPhase::Absent => return self.answer(ReplyKind::Absent),
            KeyPhase::Open => ReplyKind::Open,
            KeyPhase::Owned => ReplyKind::InProgress,
            KeyPhase::Completed => ReplyKind::Completed,
            KeyPhase::Unknown => ReplyKind::Unknown,
            KeyPhase::Dead => ReplyKind::Dead,
            KeyPhase::Erased => ReplyKind::Erased,
        };
        (answer, Some(self.token), self.digest, self.clone())
    }

    /// True when the dump can have shown this record.
    pub(super) fn shows(&self, seen: Option<&Detail>, class: KeyClass) -> bool {
        self.after_time(class).iter().any(|state| {
            let (answer, token, digest, _) = state.as_read();
            // A tombstone has no namespace, so a dump of the namespace does not list it.
            let unlisted = matches!(answer, ReplyKind::Absent | ReplyKind::Erased);
            seen.map_or(unlisted, |seen| {
                (seen.reply, seen.token, seen.digest) == (Some(answer), token, digest)
            })
        })
    }
}
