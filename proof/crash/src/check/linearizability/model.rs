//! What a key can be, and what each step can make of it. Written from the protocol's table, not from
//! its code. When a lease or a retention ends is not known here: it may at any time; I3, I6 and I7 see
//! to the times.

use crate::{
    check::key_history::Call,
    event::{Answer, Detail, Hex, Op},
    key::Class,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    phase: Phase,
    /// The owner's pair.
    nonce: Hex,
    token: u64,
    pin: Option<u8>,
    /// The pin may have been taken off.
    loose: bool,
    abandoned: bool,
    digest: Option<Hex>,
    front: Front,
}

/// What a store in front of it, which replays, may have kept of a record that was forgotten or erased: until
/// such a call has come to its end, its copy may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Front {
    None,
    Empty,
    Left { digest: Option<Hex>, pin: Option<u8> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Absent,
    Open,
    Owned,
    Completed,
    Unknown,
    Dead,
    Erased,
}

/// Stands for every nonce that is heard of once, in a claim without an answer. Two of them differ.
pub(super) const GHOST: Hex = Hex(u64::MAX);

/// How a key is kept while a call is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeping {
    pub(super) class: Class,
    /// The call may find the record expired that others do not.
    pub(super) is_found_gone: bool,
}

/// An answer, with what it carries, and the state it leaves.
type Possible = (Answer, Option<u64>, Option<Hex>, State);

/// True when a call was told something that says that it changed nothing.
pub(super) fn is_idle(call: &Call<'_>) -> bool {
    let Some(answer) = call.answer() else { return false };
    match call.op() {
        Op::Renew | Op::Get => true,
        Op::Claim => matches!(
            answer,
            Answer::Busy | Answer::Mismatch | Answer::Replay | Answer::Released | Answer::Gone
        ),
        Op::Complete | Op::Release | Op::Abandon => {
            matches!(answer, Answer::Superseded | Answer::Missing)
        }
        Op::Forget | Op::Erase => matches!(answer, Answer::Missing | Answer::Refused),
        Op::Run | Op::Purge | Op::Ready | Op::Point | Op::Done | Op::Dump => false,
        Op::Exit | Op::Blow => false,
    }
}

/// True when this is what was told.
fn fits((answer, token, digest, _): &Possible, told: &Detail) -> bool {
    told.answer == Some(*answer)
        && token.is_none_or(|token| told.token == Some(token))
        && digest.is_none_or(|digest| told.digest == Some(digest))
}

impl State {
    /// A key that nobody has asked for; `has_front` when a store that replays stands in front of it.
    pub(super) const fn start(has_front: bool) -> Self {
        Self { front: if has_front { Front::Empty } else { Front::None }, ..Self::ABSENT }
    }

    const ABSENT: Self = Self {
        phase: Phase::Absent,
        nonce: Hex(0),
        token: 0,
        pin: None,
        loose: false,
        abandoned: false,
        digest: None,
        front: Front::None,
    };

    /// The states that `call` of `nonce` can leave behind, given what it was told, if anything.
    pub(super) fn after(&self, call: &Call<'_>, nonce: Hex, keeping: Keeping) -> Vec<Self> {
        let step = |state: Self| state.step(call, nonce, keeping.class);
        let possible = self.alone(keeping.class).into_iter().flat_map(step);
        let possible = possible.chain(self.found_gone(call, nonce, keeping));
        let told = call.told().map(|end| &end.detail);
        let possible = possible.filter(|possible| told.is_none_or(|told| fits(possible, told)));
        possible.map(|(_, _, _, state)| state).collect()
    }

    /// True when `call` is of those that never change a key, and fits here.
    pub(super) fn is_unmoved_by(&self, call: &Call<'_>, keeping: Keeping) -> bool {
        let Some(told) = call.told().filter(|_| is_idle(call)) else { return false };
        let nonce = call.nonce().unwrap_or(Hex(0));
        let mut possible = self.step(call, nonce, keeping.class);
        possible.extend(self.found_gone(call, nonce, keeping));
        possible.iter().any(|possible| fits(possible, &told.detail))
    }

    /// What a call is told that finds the record expired and leaves it at that, though it is not gone for all.
    fn found_gone(&self, call: &Call<'_>, nonce: Hex, keeping: Keeping) -> Vec<Possible> {
        if keeping.class != Class::Brief || !keeping.is_found_gone {
            return Vec::new();
        }
        let told = self.absent().step(call, nonce, keeping.class).into_iter();
        let told = told.filter(|(answer, ..)| {
            matches!(answer, Answer::Missing | Answer::Absent | Answer::Lost)
        });
        told.map(|(answer, token, digest, _)| (answer, token, digest, self.clone())).collect()
    }

    /// What time alone can have made of it.
    fn alone(&self, class: Class) -> Vec<Self> {
        let mut states = vec![self.clone()];
        if class == Class::Brief && self.phase != Phase::Absent {
            states.push(self.absent());
        }
        if class == Class::Hold && self.phase == Phase::Owned {
            states.push(self.to(Phase::Unknown));
        }
        states
    }

    fn absent(&self) -> Self {
        Self { front: self.front, ..Self::ABSENT }
    }

    fn to(&self, phase: Phase) -> Self {
        Self { phase, ..self.clone() }
    }

    fn step(&self, call: &Call<'_>, nonce: Hex, class: Class) -> Vec<Possible> {
        let asked = &call.begin.detail;
        let own = (nonce, asked.token) == (self.nonce, Some(self.token));
        match call.op() {
            Op::Claim => self.claim(nonce, asked.fingerprint, class),
            Op::Renew => self.renew(own),
            Op::Complete => self.complete(own, asked.digest),
            Op::Release => self.release(own, class),
            Op::Abandon => self.abandon(own, class),
            Op::Get => vec![self.seen()],
            Op::Forget => self.removed(call, Self::forget),
            Op::Erase => self.removed(call, Self::erase),
            Op::Run | Op::Purge | Op::Ready | Op::Point | Op::Done | Op::Dump => Vec::new(),
            Op::Exit | Op::Blow => Vec::new(),
        }
    }

    fn answer(&self, answer: Answer) -> Possible {
        (answer, None, None, self.clone())
    }

    fn claim(&self, nonce: Hex, payload: Option<u8>, class: Class) -> Vec<Possible> {
        let other = self.pin.is_some() && self.pin != payload;
        let mut possible = Vec::new();
        if let Front::Left { digest, pin } = self.front
            && pin == payload
        {
            possible.push((Answer::Replay, None, digest, self.clone()));
        }
        if other {
            possible.push(self.answer(Answer::Mismatch));
        }
        if !other || self.loose {
            possible.extend(self.claim_matching(nonce, payload, class));
        }
        possible
    }

    fn claim_matching(&self, nonce: Hex, payload: Option<u8>, class: Class) -> Vec<Possible> {
        let mine = nonce == self.nonce && nonce != GHOST;
        let capped = class == Class::Capped && self.token >= u64::from(Class::CAP);
        let granted = || {
            let token = self.token + 1;
            let (phase, pin) = (Phase::Owned, payload);
            let state = Self { phase, nonce, token, pin, ..self.absent() };
            (Answer::Granted, Some(token), None, state)
        };
        let dead = |nonce| (Answer::Dead, None, None, Self { nonce, ..self.to(Phase::Dead) });
        match self.phase {
            Phase::Absent => vec![granted()],
            Phase::Open if mine => vec![self.answer(Answer::Released)],
            Phase::Open if capped => vec![dead(Hex(0))],
            Phase::Open => vec![granted()],
            Phase::Owned if mine && self.abandoned => vec![self.answer(Answer::Busy)],
            Phase::Owned if mine => {
                vec![(Answer::Granted, Some(self.token), None, self.clone())]
            }
            Phase::Owned => {
                let lapsed = match class {
                    Class::Hold => (Answer::Unknown, None, None, self.to(Phase::Unknown)),
                    _ if capped => dead(self.nonce),
                    _ => granted(),
                };
                vec![self.answer(Answer::Busy), lapsed]
            }
            Phase::Completed => vec![(Answer::Replay, None, self.digest, self.clone())],
            Phase::Unknown => vec![self.answer(Answer::Unknown)],
            Phase::Dead => vec![self.answer(Answer::Dead)],
            Phase::Erased => vec![self.answer(Answer::Gone)],
        }
    }

    fn renew(&self, own: bool) -> Vec<Possible> {
        let mut possible = vec![self.answer(Answer::Lost)];
        if own && self.phase == Phase::Owned && !self.abandoned {
            possible.push(self.answer(Answer::Extended));
        }
        possible
    }

    fn complete(&self, own: bool, digest: Option<Hex>) -> Vec<Possible> {
        vec![match self.phase {
            Phase::Absent => self.answer(Answer::Missing),
            Phase::Owned | Phase::Unknown | Phase::Dead if own => {
                (Answer::Recorded, None, None, Self { digest, ..self.to(Phase::Completed) })
            }
            Phase::Completed if own => self.answer(Answer::Recorded),
            _ => self.answer(Answer::Superseded),
        }]
    }

    /// Whether the owner attests that nothing happened is not in the history: both are possible.
    fn release(&self, own: bool, class: Class) -> Vec<Possible> {
        let open = || {
            let state = Self { loose: true, abandoned: false, ..self.to(Phase::Open) };
            (Answer::Open, None, None, state)
        };
        match self.phase {
            Phase::Absent => vec![self.answer(Answer::Missing)],
            Phase::Owned if own && class == Class::Hold => {
                vec![open(), (Answer::Unknown, None, None, self.to(Phase::Unknown))]
            }
            Phase::Owned if own => vec![open()],
            Phase::Unknown if own => vec![open(), self.answer(Answer::Superseded)],
            _ => vec![self.answer(Answer::Superseded)],
        }
    }

    fn abandon(&self, own: bool, class: Class) -> Vec<Possible> {
        vec![match self.phase {
            Phase::Absent => self.answer(Answer::Missing),
            Phase::Owned if own && class == Class::Hold => {
                (Answer::Unknown, None, None, self.to(Phase::Unknown))
            }
            Phase::Owned if own => {
                (Answer::Lapsing, None, None, Self { abandoned: true, ..self.clone() })
            }
            _ => self.answer(Answer::Superseded),
        }]
    }

    /// A removal takes the copy along; one that nobody was told the end of may have left it.
    fn removed(&self, call: &Call<'_>, remove: fn(&Self) -> Possible) -> Vec<Possible> {
        let (answer, token, digest, state) = remove(self);
        let own = Front::Left { digest: self.digest, pin: self.pin };
        let is_done = call.told().is_some() && answer != Answer::Refused;
        // Of two that were left, whichever came first stands.
        let left = match (self.front, self.phase) {
            (Front::None, _) => return vec![(answer, token, digest, state)],
            (Front::Empty, Phase::Completed) => vec![own],
            (Front::Left { .. }, Phase::Completed) => vec![self.front, own],
            (front, _) => vec![front],
        };
        let fronts = if is_done { &[Front::Empty][..] } else { &left };
        let leaves =
            |front: &Front| (answer, token, digest, Self { front: *front, ..state.clone() });
        let mut possible: Vec<Possible> = fronts.iter().map(leaves).collect();
        // What is not there any more but for its copy is forgotten by removing that.
        if call.op() == Op::Forget && answer == Answer::Missing && left != [Front::Empty] {
            possible.extend(
                possible
                    .clone()
                    .into_iter()
                    .map(|(_, token, digest, state)| (Answer::Forgotten, token, digest, state)),
            );
        }
        possible
    }

    fn forget(&self) -> Possible {
        match self.phase {
            Phase::Absent => self.answer(Answer::Missing),
            Phase::Open | Phase::Completed | Phase::Dead => {
                (Answer::Forgotten, None, None, self.absent())
            }
            Phase::Owned | Phase::Unknown | Phase::Erased => self.answer(Answer::Refused),
        }
    }

    /// The tombstone keeps the token, so that whoever still runs is told.
    fn erase(&self) -> Possible {
        if self.phase == Phase::Absent {
            return self.answer(Answer::Missing);
        }
        let erased = Self { phase: Phase::Erased, token: self.token, ..self.absent() };
        (Answer::Erased, None, None, erased)
    }

    fn seen(&self) -> Possible {
        let answer = match self.phase {
            Phase::Absent => return self.answer(Answer::Absent),
            Phase::Open => Answer::Open,
            Phase::Owned => Answer::InProgress,
            Phase::Completed => Answer::Completed,
            Phase::Unknown => Answer::Unknown,
            Phase::Dead => Answer::Dead,
            Phase::Erased => Answer::Erased,
        };
        (answer, Some(self.token), self.digest, self.clone())
    }

    /// True when a look at the store can have shown this.
    pub(super) fn shows(&self, seen: Option<&Detail>, class: Class) -> bool {
        self.alone(class).iter().any(|state| {
            let (answer, token, digest, _) = state.seen();
            // A tombstone has no namespace any more, and a dump asks for one.
            let unlisted = matches!(answer, Answer::Absent | Answer::Erased);
            seen.map_or(unlisted, |seen| {
                (seen.answer, seen.token, seen.digest) == (Some(answer), token, digest)
            })
        })
    }
}
